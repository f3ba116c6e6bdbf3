//! Injected pods that lack one addition, and injected pods that somebody changed. A condition of the policy looks for
//! pods that lack nothing, and must not take one of these for such a pod.

use anyhow::Context as _;
use serde_json::{Value, json};

use super::golden::{Becomes, Golden, Settings, Spot, by_the_code};

/// Change of an injected pod.
type Change = fn(&mut Value);

/// Returns the pods, with the outcomes that the code gives.
pub(super) fn incomplete() -> anyhow::Result<Vec<Golden>> {
    let changes: [(&str, Change); 14] = [
        ("nothing", |_| {}),
        ("the label", |pod| remove(&mut pod["metadata"]["labels"], "remora.dev/sidecar")),
        ("the value of the label", |pod| pod["metadata"]["labels"]["remora.dev/sidecar"] = json!("no")),
        ("the record", |pod| remove(&mut pod["metadata"]["annotations"], "remora.dev/injected")),
        ("the first variable", |pod| remove_first(&mut pod["spec"]["containers"][0]["env"])),
        ("all variables", |pod| remove(&mut pod["spec"]["containers"][0], "env")),
        ("the order of the variables", |pod| {
            if let Some(variables) = pod["spec"]["containers"][0]["env"].as_array_mut() {
                variables.insert(0, json!({"name": "OWN", "value": "1"}));
            }
        }),
        ("a container", |pod| push(&mut pod["spec"]["containers"], json!({"name": "late", "image": "late"}))),
        ("an init container", |pod| push(&mut pod["spec"]["initContainers"], json!({"name": "late", "image": "late"}))),
        ("the name of a volume", |pod| {
            pod["spec"]["volumes"][0]["name"] = json!("renamed");
            pod["spec"]["initContainers"][0]["volumeMounts"][0]["name"] = json!("renamed");
        }),
        ("the list of environments", |pod| pod["metadata"]["annotations"]["remora.dev/inject"] = json!("a,c")),
        ("an option", |pod| pod["metadata"]["annotations"]["remora.dev/port"] = json!("many")),
        ("the use of a socket", |pod| pod["metadata"]["annotations"]["remora.dev/unix-socket"] = json!("true")),
        ("the name of an annotation, and the label", |pod| {
            remove(&mut pod["metadata"]["labels"], "remora.dev/sidecar");
            pod["metadata"]["annotations"]["remora.dev/prot"] = json!("1");
        }),
    ];
    let mut pods = Vec::new();
    for socket in [json!({}), json!({"remora.dev/unix-socket": "true"})] {
        let mut pod = json!({"metadata": {"annotations": socket}, "spec": {
            "initContainers": [{"name": "first", "image": "first"}],
            "containers": [{"name": "web", "image": "web"}],
        }});
        pod["metadata"]["annotations"]["remora.dev/inject"] = json!("a, b");
        let Becomes::Pod { pod: injected, .. } = by_the_code(&pod, Settings::Defaults)? else {
            anyhow::bail!("the pod is refused");
        };
        for (what, change) in changes {
            let mut pod = injected.clone();
            change(&mut pod);
            let name = format!("injected, then somebody changed {what}, annotations {socket}");
            let becomes = by_the_code(&pod, Settings::Defaults).with_context(|| name.clone())?;
            let defaults = Default::default();
            pods.push(Golden { name, pod, place: Spot::Anywhere, defaults, settings: Settings::Defaults, becomes });
        }
    }
    Ok(pods)
}

fn remove(from: &mut Value, key: &str) {
    if let Some(members) = from.as_object_mut() {
        members.remove(key);
    }
}

fn remove_first(from: &mut Value) {
    if let Some(items) = from.as_array_mut() {
        items.remove(0);
    }
}

fn push(to: &mut Value, item: Value) {
    if let Some(items) = to.as_array_mut() {
        items.push(item);
    }
}
