//! CEL expressions of the decision that [`decide`](super::super::decide) makes.

use super::{
    Error, Validation, Variables,
    lift::{self, Mark},
    specimen::Specimens,
    text,
};
use crate::{
    api::names::sidecar,
    injection::decide::{MIRROR, Reason, Refusal},
};

pub(super) fn define(variables: &mut Variables, specimens: &Specimens) -> Result<(), Error> {
    for (name, list) in [("init", "initContainers"), ("containers", "containers"), ("volumes", "volumes")] {
        variables.define(name, format!("has(object.spec.{list}) ? object.spec.{list} : []"));
    }
    variables.define("all", "variables.init + variables.containers");
    variables.define("others", format!("variables.all.filter(container, container.name != '{}')", sidecar::CONTAINER));
    variables.define("impossible", impossible());
    variables
        .define("position", format!("variables.init.map(container, container.name).indexOf('{}')", sidecar::CONTAINER));
    variables.define("ours", ours(specimens));
    variables.define("volumeNames", specimens.volume_names()?);
    variables.define("taken", taken());
    variables.define("portTaken", port_taken());
    variables
        .define("refusals", "size(variables.invalid) > 0 ? variables.invalid : variables.taken + variables.portTaken");
    variables.define(
        "refusal",
        "variables.impossible != '' || size(variables.refusals) == 0 ? '' : string(variables.refusals[0])",
    );
    Ok(())
}

pub(super) fn refusals() -> Vec<Validation> {
    const TAKEN_AWAY: &str = "the pod asks for flags and has no sidecar: Remora's MutatingAdmissionPolicy was not applied, or \
                              another policy or webhook took the sidecar away";
    vec![
        Validation::new(
            "variables.refusal == ''",
            "the pod cannot have the sidecar that it asks for",
            Some("variables.refusal".to_owned()),
        ),
        Validation::new(
            "variables.impossible != '' || variables.refusal != '' || variables.position >= 0",
            TAKEN_AWAY,
            None,
        ),
    ]
}

/// Returns the expression of the warning for a pod that cannot be injected, or an empty string. System namespaces are
/// missing here, because the policy does not select them.
fn impossible() -> String {
    let warning = |reason: Reason| text(reason.warning().unwrap_or_default());
    format!(
        "'{MIRROR}' in variables.annotations ? {}\n  \
         : object.spec.?os.?name.orValue('') == 'windows' || object.spec.?nodeSelector[?'kubernetes.io/os'].orValue('') == 'windows' ? {}\n  \
         : object.spec.?hostNetwork.orValue(false) ? {}\n  : ''",
        warning(Reason::MirrorPod),
        warning(Reason::Windows),
        warning(Reason::HostNetwork),
    )
}

/// Returns an expression that is true if the init container with the sidecar's name is the sidecar and serves all
/// requested environments.
fn ours(specimens: &Specimens) -> String {
    let mounts = "(has(ours.volumeMounts) ? ours.volumeMounts : [])";
    format!(
        "variables.position >= 0 && [variables.init[variables.position]].all(ours,\n  \
         ours.?restartPolicy.orValue('') == 'Always'\n  \
         && variables.environments.all(environment, {mounts}.exists(mount, mount.mountPath == {}))\n  \
         && (!variables.socket || {mounts}.exists(mount, mount.mountPath == {})))",
        specimens.mount_path(),
        text(sidecar::SOCKET_DIRECTORY),
    )
}

/// Returns the expression of the refusals for names that are used by anything other than an earlier injection.
fn taken() -> String {
    let message = |what: &'static str, name: &str| {
        let refusal = Refusal::NameTaken { what, name: "<name>".to_owned() }.to_string();
        lift::string(&refusal, &[Mark::Text("<name>", "<name>")]).replace("<name>", name)
    };
    format!(
        "size(variables.all) - size(variables.others) == 1 && variables.ours ? []\n  \
         : size(variables.all) == size(variables.others) ? variables.volumeNames.filter(name,\n    \
         variables.volumes.exists(volume, volume.name == name)).map(name,\n    {})\n  : [{}]",
        message("volume", "'\"' + name + '\"'"),
        message("container", &text(&format!("\"{}\"", sidecar::CONTAINER))),
    )
}

/// Returns the expression of the refusals for other containers that declare a port of the sidecar.
fn port_taken() -> String {
    // A placeholder: port 7 is below all allowed ports, so the sidecar never uses it.
    const TAKEN: u16 = 7;
    let refusal = Refusal::PortTaken { container: "<container>".to_owned(), taken: TAKEN }.to_string();
    let message = lift::string(
        &refusal,
        &[Mark::Text("<container>", "<container>"), Mark::Text("7", "string(int(declared.containerPort))")],
    )
    .replace("<container>", "'\"' + container.name + '\"'");
    format!(
        "variables.others.filter(container, has(container.ports)).map(container, container.ports.filter(declared,\n  \
         declared.?protocol.orValue('TCP') == 'TCP' && int(declared.containerPort) in [variables.port, variables.port + 1])\n  \
         .map(declared,\n    {message})).filter(messages, size(messages) > 0).map(messages, messages[0])"
    )
}
