//! CEL expressions of the operations that [`patch`](super::super::patch) returns.

use super::{Error, Variables, template::TemplatePlans, text, texts};
use crate::{
    api::names::{annotation, label},
    injection::annotations::VARIABLES,
};

pub(super) fn define(variables: &mut Variables, templates: &TemplatePlans) -> Result<(), Error> {
    variables.define("root", "object.spec.?securityContext.?runAsUser.optMap(user, int(user) == 0).orValue(false)");
    variables.define("sidecar", templates.sidecar()?);
    variables.define("plannedVolumes", templates.volumes()?);
    variables.define(
        "endpoints",
        format!(
            "{}.filter(name, name in variables.chosenVariables)\n  .map(name, {{'name': name, 'value': {}[name]}})",
            texts(VARIABLES),
            templates.endpoints()
        ),
    );
    variables.define("mounts", templates.mounts()?);
    // The containers that start after the sidecar. If the sidecar is added in front, it moves the init containers by
    // one.
    variables.define(
        "laterContainers",
        "variables.init.transformList(place, container, place > variables.position,\n    \
         {'path': dyn('/spec/initContainers/' + string(variables.position < 0 ? place + 1 : place)), 'container': dyn(container)})\n  \
         + variables.containers.transformList(place, container,\n    \
         {'path': dyn('/spec/containers/' + string(place)), 'container': dyn(container)})",
    );
    Ok(())
}

/// Returns the expression of all operations, ordered so that each finds its parent.
pub(super) fn patch(templates: &TemplatePlans) -> String {
    let mut sum = vec![
        unless("has(object.metadata.labels)", &add("'/metadata/labels'", "{}")),
        unless(
            &format!("object.metadata.?labels[?{}].orValue('') == {}", text(label::SIDECAR), text(label::INJECTED)),
            &add(&member("/metadata/labels/", label::SIDECAR), &text(label::INJECTED)),
        ),
        // A record beside an existing sidecar stays, whatever it contains: it is for people only.
        unless(
            &format!("variables.position >= 0 && {} in variables.annotations", text(annotation::INJECTED)),
            &add(&member("/metadata/annotations/", annotation::INJECTED), &templates.record()),
        ),
        unless("has(object.spec.volumes)", &add("'/spec/volumes'", "[]")),
        format!(
            "variables.plannedVolumes.filter(wanted, !variables.volumes.exists(volume, volume.name == wanted.name))\n    \
             .map(wanted, {})",
            add("'/spec/volumes/-'", "wanted")
        ),
        unless("variables.position >= 0 || has(object.spec.initContainers)", &add("'/spec/initContainers'", "[]")),
        unless("variables.position >= 0", &add("'/spec/initContainers/0'", "variables.sidecar")),
        list("env", "endpoints"),
    ];
    // Each operation inserts at the front, so the last variable comes first.
    for place in (0..VARIABLES.len()).rev() {
        sum.push(item("env", "endpoints", place, "name", "/env/0"));
    }
    sum.push(list("volumeMounts", "mounts"));
    for place in 0..templates.most_mounts() {
        sum.push(item("volumeMounts", "mounts", place, "mountPath", "/volumeMounts/-"));
    }
    format!("variables.skipWarning != '' || variables.refusal != '' ? [] :\n  {}", sum.join("\n  + "))
}

fn add(path: &str, value: &str) -> String {
    format!("JSONPatch{{op: 'add', path: {path}, value: {value}}}")
}

fn unless(condition: &str, operation: &str) -> String {
    format!("({condition} ? [] : [{operation}])")
}

/// Returns a JSON pointer to a key, as a string literal.
fn member(path: &str, key: &str) -> String {
    text(&format!("{path}{}", key.replace('~', "~0").replace('/', "~1")))
}

/// Returns the operations that create a container's list if it is absent and gets an item.
fn list(list: &str, wanted: &str) -> String {
    format!(
        "variables.laterContainers.filter(target, size(variables.{wanted}) > 0 && !has(target.container.{list}))\n    .map(target, {})",
        add(&format!("target.path + '/{list}'"), "[]")
    )
}

/// Returns the operations that add one item to the list of each container, unless the list has an item with the same
/// key.
fn item(list: &str, wanted: &str, place: usize, key: &str, path: &str) -> String {
    let value = format!("variables.{wanted}[{place}]");
    format!(
        "(size(variables.{wanted}) <= {place} ? [] : variables.laterContainers.filter(target, !(has(target.container.{list})\n    \
         && target.container.{list}.exists(present, present.{key} == {value}.{key})))\n    .map(target, {}))",
        add(&format!("target.path + '{path}'"), &value)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pointer_to_key_with_slash_is_escaped() {
        assert_eq!(member("/metadata/labels/", label::SIDECAR), "'/metadata/labels/remora.dev~1sidecar'");
    }
}
