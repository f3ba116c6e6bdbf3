//! CEL expressions of the warnings for the author of a pod. Warnings do not prevent the injection.

use super::{
    Validation, Variables, quoted, text, texts,
    to_cel::{self, Placeholder},
};
use crate::{
    api::names::{GROUP, annotation, sidecar},
    injection::{
        annotations::KNOWN,
        decide::unknown_annotation,
        layout::Layout,
        resources::{BURSTABLE, small_volume_warning},
    },
};

pub(super) fn define(variables: &mut Variables) {
    variables.define("unknownAnnotations", format!("variables.annotations.filter(key, {})", is_unknown()));
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
        "memoryLimitSum",
        "variables.limits.exists(limit, quantity(limit).compareTo(quantity('0')) <= 0) ? -1\n  \
         : variables.limits.map(limit, quantity(limit).isInteger() ? quantity(limit).asInteger()\n    \
         : int(quantity(limit).asApproximateFloat())).sum()",
    );
}

/// Returns an expression that is true if the annotation `key` is unknown.
pub(super) fn is_unknown() -> String {
    format!(
        "key.startsWith({}) && !(key in {}) && !key.startsWith({})",
        text(&format!("{GROUP}/")),
        texts(KNOWN),
        text(annotation::REVISION)
    )
}

pub(super) fn warnings() -> Vec<Validation> {
    let equal = |resource: &str| {
        format!("quantity(variables.{resource}Request).compareTo(quantity(variables.{resource}Limit)) == 0")
    };
    vec![
        Validation::new(
            "variables.skipWarning == ''",
            "the pod gets no Remora sidecar",
            Some("variables.skipWarning".to_owned()),
        ),
        of_injected(
            "size(variables.unknownAnnotations) == 0",
            "the pod has an annotation that is unknown to Remora",
            Some(format!("variables.unknownAnnotations.map(key, {}).join('; ')", unknown_key())),
        ),
        of_injected(
            &format!("variables.podLevel || !variables.guaranteed\n  || {}\n  && {}", equal("cpu"), equal("memory")),
            BURSTABLE,
            None,
        ),
        of_injected(
            &format!("variables.memoryLimitSum < 0 || variables.memoryLimitSum >= {}", 2 * Layout::default().bytes),
            "the pod's memory limits are small",
            Some(small_volume_message()),
        ),
    ]
}

/// Creates a warning that applies only to pods that get a sidecar.
fn of_injected(expression: &str, message: &str, message_expression: Option<String>) -> Validation {
    let expression = format!("variables.skipWarning != '' || variables.refusal != ''\n  || {expression}");
    Validation::new(expression, message, message_expression)
}

fn unknown_key() -> String {
    let placeholders = [Placeholder::Text("\"placeholder\"", "<key>")];
    to_cel::string(&unknown_annotation("placeholder"), &placeholders).replace("<key>", &quoted("key"))
}

fn small_volume_message() -> String {
    let placeholders = [
        Placeholder::Text("7000000", "string(variables.memoryLimitSum)"),
        Placeholder::Text("3500000", "string(variables.memoryLimitSum / 2)"),
    ];
    to_cel::string(&small_volume_warning(7_000_000), &placeholders)
}
