//! CEL expressions of the warnings for the author of a pod. Warnings do not prevent the injection.

use super::{
    Validation, Variables,
    lift::{self, Mark},
    quoted, text, texts,
};
use crate::{
    api::names::{GROUP, annotation, sidecar},
    injection::{
        annotations::KNOWN,
        decide::unknown,
        layout::Layout,
        resources::{BURSTABLE, little_room},
    },
};

pub(super) fn define(variables: &mut Variables) {
    variables.define(
        "unknown",
        format!(
            "variables.annotations.filter(key, key.startsWith({}) && !(key in {}) && !key.startsWith({}))",
            text(&format!("{GROUP}/")),
            texts(KNOWN),
            text(annotation::REVISION)
        ),
    );
    // The containers that run at the same time: if each has a memory limit, the sum of the limits bounds the volume.
    variables.define(
        "limits",
        format!(
            "(variables.containers + variables.init.filter(container, container.?restartPolicy.orValue('') == 'Always'))\n  \
             .filter(container, container.name != '{}')\n  \
             .map(container, container.?resources.?limits.?memory.orValue('0')) + [variables.memoryLimit == '' ? '0' : variables.memoryLimit]",
            sidecar::CONTAINER
        ),
    );
    variables.define(
        "room",
        "variables.limits.exists(limit, quantity(limit).compareTo(quantity('0')) <= 0) ? -1\n  \
         : variables.limits.map(limit, quantity(limit).isInteger() ? quantity(limit).asInteger()\n    \
         : int(quantity(limit).asApproximateFloat())).sum()",
    );
}

pub(super) fn warnings() -> Vec<Validation> {
    let equal = |resource: &str| {
        format!("quantity(variables.{resource}Request).compareTo(quantity(variables.{resource}Limit)) == 0")
    };
    vec![
        Validation::new("variables.impossible == ''", "no Remora sidecar", Some("variables.impossible".to_owned())),
        of_injected(
            "size(variables.unknown) == 0",
            "an annotation is none of Remora's",
            Some(format!("variables.unknown.map(key, {}).join('; ')", unknown_key())),
        ),
        of_injected(
            &format!("variables.podLevel || !variables.guaranteed\n  || {}\n  && {}", equal("cpu"), equal("memory")),
            BURSTABLE,
            None,
        ),
        of_injected(
            &format!("variables.room < 0 || variables.room >= {}", 2 * Layout::default().bytes),
            "the pod's memory limits are small",
            Some(room()),
        ),
    ]
}

/// Creates a warning that applies only to pods that get a sidecar.
fn of_injected(expression: &str, message: &str, message_expression: Option<String>) -> Validation {
    let expression = format!("variables.impossible != '' || variables.refusal != ''\n  || {expression}");
    Validation::new(expression, message, message_expression)
}

fn unknown_key() -> String {
    let marks = [Mark::Text("\"specimen\"", "<key>")];
    lift::string(&unknown("specimen"), &marks).replace("<key>", &quoted("key"))
}

fn room() -> String {
    let marks = [Mark::Text("7000000", "string(variables.room)"), Mark::Text("3500000", "string(variables.room / 2)")];
    lift::string(&little_room(7_000_000), &marks)
}
