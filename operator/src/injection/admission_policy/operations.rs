//! What is missing in a pod, as [`patch`](super::super::patch) finds it.

use super::{Error, Variables, specimen::Specimens, text, texts};
use crate::{
    api::names::{annotation, label},
    injection::annotations::VARIABLES,
};

pub(super) fn define(variables: &mut Variables, specimens: &Specimens) -> Result<(), Error> {
    variables.define("root", "object.spec.?securityContext.?runAsUser.optMap(user, int(user) == 0).orValue(false)");
    variables.define("sidecar", specimens.sidecar()?);
    variables.define("planned", specimens.volumes()?);
    variables.define(
        "endpoints",
        format!(
            "{}.filter(name, name in variables.chosen)\n  .map(name, {{'name': name, 'value': {}[name]}})",
            texts(VARIABLES),
            specimens.endpoints()
        ),
    );
    variables.define("mounts", specimens.mounts()?);
    // Those that start after the sidecar. Init containers have moved, where it is added in front of them.
    variables.define(
        "behind",
        "variables.init.transformList(place, container, place > variables.position,\n    \
         {'path': dyn('/spec/initContainers/' + string(variables.position < 0 ? place + 1 : place)), 'container': dyn(container)})\n  \
         + variables.containers.transformList(place, container,\n    \
         {'path': dyn('/spec/containers/' + string(place)), 'container': dyn(container)})",
    );
    Ok(())
}

/// All operations, in an order in which each finds what it needs.
pub(super) fn patch(specimens: &Specimens) -> String {
    let mut sum = vec![
        unless("has(object.metadata.labels)", &add("'/metadata/labels'", "{}")),
        unless(
            &format!("object.metadata.?labels[?{}].orValue('') == {}", text(label::SIDECAR), text(label::INJECTED)),
            &add(&member("/metadata/labels/", label::SIDECAR), &text(label::INJECTED)),
        ),
        // Something there is enough, where the sidecar is there too: it is for people only.
        unless(
            &format!("variables.position >= 0 && {} in variables.annotations", text(annotation::INJECTED)),
            &add(&member("/metadata/annotations/", annotation::INJECTED), &specimens.record()),
        ),
        unless("has(object.spec.volumes)", &add("'/spec/volumes'", "[]")),
        format!(
            "variables.planned.filter(wanted, !variables.volumes.exists(volume, volume.name == wanted.name))\n    \
             .map(wanted, {})",
            add("'/spec/volumes/-'", "wanted")
        ),
        unless("variables.position >= 0 || has(object.spec.initContainers)", &add("'/spec/initContainers'", "[]")),
        unless("variables.position >= 0", &add("'/spec/initContainers/0'", "variables.sidecar")),
        list("env", "endpoints"),
    ];
    // Each goes to the front, so the last one first.
    for place in (0..VARIABLES.len()).rev() {
        sum.push(item("env", "endpoints", place, "name", "/env/0"));
    }
    sum.push(list("volumeMounts", "mounts"));
    for place in 0..specimens.most_mounts() {
        sum.push(item("volumeMounts", "mounts", place, "mountPath", "/volumeMounts/-"));
    }
    format!("variables.impossible != '' || variables.refusal != '' ? [] :\n  {}", sum.join("\n  + "))
}

fn add(path: &str, value: &str) -> String {
    format!("JSONPatch{{op: 'add', path: {path}, value: {value}}}")
}

fn unless(condition: &str, operation: &str) -> String {
    format!("({condition} ? [] : [{operation}])")
}

/// A pointer to a key.
fn member(path: &str, key: &str) -> String {
    text(&format!("{path}{}", key.replace('~', "~0").replace('/', "~1")))
}

/// The list of a container, where something has to go into it.
fn list(list: &str, wanted: &str) -> String {
    format!(
        "variables.behind.filter(target, size(variables.{wanted}) > 0 && !has(target.container.{list}))\n    .map(target, {})",
        add(&format!("target.path + '/{list}'"), "[]")
    )
}

/// One item of that list, where none has its key.
fn item(list: &str, wanted: &str, place: usize, key: &str, path: &str) -> String {
    let value = format!("variables.{wanted}[{place}]");
    format!(
        "(size(variables.{wanted}) <= {place} ? [] : variables.behind.filter(target, !(has(target.container.{list})\n    \
         && target.container.{list}.exists(present, present.{key} == {value}.{key})))\n    .map(target, {}))",
        add(&format!("target.path + '{path}'"), &value)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pointers_are_escaped() {
        assert_eq!(member("/metadata/labels/", label::SIDECAR), "'/metadata/labels/remora.dev~1sidecar'");
    }
}
