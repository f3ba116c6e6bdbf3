//! Conditions by which a policy leaves out pods that it would neither change nor warn about.
//!
//! The API server evaluates a condition before the variables, at a fraction of their cost. A condition can use neither
//! the variables nor the namespace. So each one also selects some pods that the policy then leaves alone, but it never
//! leaves out a pod that the policy has something to do for.

use super::{Condition, Error, decision, options, resources, template::TemplatePlans, warnings};
use crate::{
    api::names::{annotation, label, sidecar},
    injection::{annotations::VARIABLES, layout::Layout},
};

/// Number of items up to which a list of a pod is looked at. A pod with a longer list is selected: this bounds the cost
/// of a condition, which the API server limits to a quarter of that of a policy.
const MOST: usize = 100;

const ANNOTATIONS: &str = "object.metadata.?annotations.orValue({})";

/// Returns the condition of the policy that changes pods. The API server evaluates this policy again after its own
/// change. The condition is false then, unless another policy or webhook added a container in between.
///
/// # Errors
///
/// Fails if the names of the volumes cannot be turned into an expression.
pub(super) fn incomplete(templates: &TemplatePlans) -> Result<Condition, Error> {
    let volumes = templates
        .volume_names()?
        .replace(
            "variables.environments",
            &options::names(&format!("{ANNOTATIONS}[?'{}'].orValue('')", annotation::INJECT)),
        )
        .replace("variables.socket", "false");
    // The patch adds the variables in front, so only the first ones are looked at.
    let variables: Vec<_> =
        VARIABLES.iter().enumerate().map(|(place, name)| format!("container.env[{place}].name == '{name}'")).collect();
    // A sidecar without the mount of the socket is a refusal if the pod asks for the socket, so such a pod lacks nothing.
    let complete = [
        format!("object.metadata.?labels[?'{}'].orValue('') == '{}'", label::SIDECAR, label::INJECTED),
        format!("'{}' in {ANNOTATIONS}", annotation::INJECTED),
        format!(
            "[{}, {}, {}].all(items, size(items) <= {MOST})",
            list("initContainers"),
            list("containers"),
            list("volumes")
        ),
        format!(
            "{}.exists(ours, ours.name == '{}' && size(ours.?volumeMounts.orValue([])) <= {MOST}\n    \
             && ours.?volumeMounts.orValue([]).all(mount, mount.mountPath != '{}'))",
            list("initContainers"),
            sidecar::CONTAINER,
            sidecar::SOCKET_DIRECTORY
        ),
        format!("({volumes})\n    .all(name, {}.exists(volume, volume.name == name))", list("volumes")),
        format!(
            "{}.all(container, size(container.?env.orValue([])) >= {} && {})",
            others(),
            variables.len(),
            variables.join(" && ")
        ),
    ];
    Ok(Condition { name: "lacks-an-addition", expression: format!("!({})", complete.join("\n  && ")) })
}

/// Returns the condition of the policy that warns.
pub(super) fn may_get_warning() -> Condition {
    let running = format!(
        "({} + {}.filter(container, container.?restartPolicy.orValue('') == 'Always'))",
        list("containers"),
        list("initContainers")
    );
    let warned = [
        decision::skipped(ANNOTATIONS).map(|(skipped, _)| skipped).join("\n  || "),
        format!("{ANNOTATIONS}.exists(key, {})", warnings::is_unknown()),
        format!("[{}, {}].exists(items, size(items) > {MOST})", list("initContainers"), list("containers")),
        // Only a Guaranteed pod can become Burstable.
        format!("{}.all(container, {} && {})", others(), resources::limited("'cpu'"), resources::limited("'memory'")),
        // A container without a limit, or with a larger one, makes the sum large enough.
        format!(
            "{running}.all(container, container.name == '{}'\n    \
             || container.?resources.?limits[?'memory'].optMap(limit, quantity(limit).isLessThan(quantity('{}'))).orValue(false))",
            sidecar::CONTAINER,
            2 * Layout::default().bytes
        ),
    ];
    Condition { name: "may-get-a-warning", expression: warned.join("\n  || ") }
}

/// Returns the expression of a list of the pod, which may be absent.
fn list(name: &str) -> String {
    format!("object.spec.?{name}.orValue([])")
}

/// Returns the expression of all containers except the sidecar.
fn others() -> String {
    format!(
        "({} + {}).filter(container, container.name != '{}')",
        list("initContainers"),
        list("containers"),
        sidecar::CONTAINER
    )
}
