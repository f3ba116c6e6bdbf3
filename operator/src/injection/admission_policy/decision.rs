//! CEL expressions of the decision that [`decide`](super::super::decide) makes.

use super::{
    Error, Validation, Variables,
    template::TemplatePlans,
    text,
    to_cel::{self, Placeholder},
};
use crate::{
    api::names::sidecar,
    injection::decide::{MIRROR, Refusal, SkipReason},
};

pub(super) fn define(variables: &mut Variables, templates: &TemplatePlans) -> Result<(), Error> {
    for (name, list) in [("init", "initContainers"), ("containers", "containers"), ("volumes", "volumes")] {
        variables.define(name, format!("has(object.spec.{list}) ? object.spec.{list} : []"));
    }
    variables.define("all", "variables.init + variables.containers");
    variables.define("others", format!("variables.all.filter(container, container.name != '{}')", sidecar::CONTAINER));
    variables.define("skipWarning", skip_warning());
    variables
        .define("position", format!("variables.init.map(container, container.name).indexOf('{}')", sidecar::CONTAINER));
    variables.define("isSidecar", is_sidecar(templates));
    variables.define("volumeNames", templates.volume_names()?);
    variables.define("nameConflicts", name_conflicts());
    variables.define("portConflicts", port_conflicts());
    variables.define(
        "refusals",
        "size(variables.invalid) > 0 ? variables.invalid : variables.nameConflicts + variables.portConflicts",
    );
    variables.define(
        "refusal",
        "variables.skipWarning != '' || size(variables.refusals) == 0 ? '' : string(variables.refusals[0])",
    );
    Ok(())
}

pub(super) fn refusals() -> Vec<Validation> {
    const REMOVED: &str = "the pod requests flags and has no sidecar: Remora's MutatingAdmissionPolicy was not applied, or \
                           another policy or webhook removed the sidecar; check the policy, its binding, and the others";
    vec![
        Validation::new(
            "variables.refusal == ''",
            "the pod cannot have the sidecar that it requests",
            Some("variables.refusal".to_owned()),
        ),
        Validation::new(
            "variables.skipWarning != '' || variables.refusal != '' || variables.position >= 0",
            REMOVED,
            None,
        ),
    ]
}

/// Returns the expression of the warning for a pod that cannot be injected, or an empty string.
fn skip_warning() -> String {
    let cases = skipped("variables.annotations")
        .map(|(condition, reason)| format!("{condition} ? {}", text(reason.warning().unwrap_or_default())));
    format!("{}\n  : ''", cases.join("\n  : "))
}

/// Returns the conditions under which a pod cannot be injected, for an expression of its annotations. System namespaces
/// are missing here, because the policy does not select them.
pub(super) fn skipped(annotations: &str) -> [(String, SkipReason); 3] {
    [
        (format!("'{MIRROR}' in {annotations}"), SkipReason::MirrorPod),
        (
            "object.spec.?os.?name.orValue('') == 'windows' || object.spec.?nodeSelector[?'kubernetes.io/os'].orValue('') == 'windows'".to_owned(),
            SkipReason::Windows,
        ),
        ("object.spec.?hostNetwork.orValue(false)".to_owned(), SkipReason::HostNetwork),
    ]
}

/// Returns an expression that is true if the init container with the sidecar's name is the sidecar and serves all
/// requested environments.
fn is_sidecar(templates: &TemplatePlans) -> String {
    let mounts = "(has(ours.volumeMounts) ? ours.volumeMounts : [])";
    format!(
        "variables.position >= 0 && [variables.init[variables.position]].all(ours,\n  \
         ours.?restartPolicy.orValue('') == 'Always'\n  \
         && variables.environments.all(environment, {mounts}.exists(mount, mount.mountPath == {}))\n  \
         && (!variables.socket || {mounts}.exists(mount, mount.mountPath == {})))",
        templates.mount_path(),
        text(sidecar::SOCKET_DIRECTORY),
    )
}

/// Returns the expression of the refusals for names that are used by anything other than an earlier injection.
fn name_conflicts() -> String {
    let message = |what: &'static str, name: &str| {
        let refusal = Refusal::NameTaken { what, name: "<name>".to_owned() }.to_string();
        to_cel::string(&refusal, &[Placeholder::Text("<name>", "<name>")]).replace("<name>", name)
    };
    format!(
        "size(variables.all) - size(variables.others) == 1 && variables.isSidecar ? []\n  \
         : size(variables.all) == size(variables.others) ? variables.volumeNames.filter(name,\n    \
         variables.volumes.exists(volume, volume.name == name)).map(name,\n    {})\n  : [{}]",
        message("volume", "'\"' + name + '\"'"),
        message("container", &text(&format!("\"{}\"", sidecar::CONTAINER))),
    )
}

/// Returns the expression of the refusals for other containers that declare a port of the sidecar.
fn port_conflicts() -> String {
    // A placeholder: port 7 is below all allowed ports, so the sidecar never uses it.
    const TAKEN: u16 = 7;
    let refusal = Refusal::PortTaken { container: "<container>".to_owned(), taken: TAKEN }.to_string();
    let message = to_cel::string(
        &refusal,
        &[
            Placeholder::Text("<container>", "<container>"),
            Placeholder::Text("7", "string(int(declared.containerPort))"),
        ],
    )
    .replace("<container>", "'\"' + container.name + '\"'");
    format!(
        "variables.others.filter(container, has(container.ports)).map(container, container.ports.filter(declared,\n  \
         declared.?protocol.orValue('TCP') == 'TCP' && int(declared.containerPort) in [variables.port, variables.port + 1])\n  \
         .map(declared,\n    {message})).filter(messages, size(messages) > 0).map(messages, messages[0])"
    )
}
