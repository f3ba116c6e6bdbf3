//! Findings about pods that ask for flags, and about quotas and NetworkPolicies. Pure.

use std::collections::{BTreeMap, BTreeSet};

use remora_tools::counted;

use super::{
    facts::{Quota, Requesting, Workloads},
    finding::{Finding, Level},
};

/// Number of pods that a finding names.
const NAMED: usize = 5;
/// Number of workloads that a finding names.
const WORKLOADS_NAMED: usize = 50;
/// Share of a quota in percent from which on it is a finding.
const QUOTA_NEARLY_FULL: i64 = 90;
/// Number of restarts from which on a sidecar is a finding.
const MANY_RESTARTS: i32 = 3;

/// Derives the findings. `image` is the image of the sidecar that new pods get, if it is known.
pub(super) fn findings(workloads: &Workloads, image: Option<&str>) -> Vec<Finding> {
    let Workloads { pods, environments, quotas, policies } = workloads;
    let mut findings = Vec::new();
    let group = |wrong: &dyn Fn(&Requesting) -> bool| -> Vec<String> {
        let wrong = pods.iter().filter(|pod| wrong(pod));
        wrong.map(|pod| format!("{}/{}", pod.namespace, pod.name)).collect()
    };
    let mut add = |level, names: &[String], message: &str, remedy: &str| {
        if !names.is_empty() {
            findings.push(Finding::new(level, named(names), message, remedy));
        }
    };
    add(
        Level::Error,
        &group(&|pod| !pod.has_sidecar),
        "the pod asks for flags and has no sidecar: injection did not work when it was created",
        "delete the pod once injection works; auditor.evict of the chart does it for all",
    );
    for pod in pods.iter().filter(|pod| pod.has_sidecar) {
        let name = format!("{}/{}", pod.namespace, pod.name);
        if let Some(waits) = &pod.waits {
            let remedy = format!("kubectl -n {} logs {} -c remora, and the pod's Events", pod.namespace, pod.name);
            add(Level::Error, &[name], &format!("the sidecar does not run: {waits}"), &remedy);
        } else if pod.restarts >= MANY_RESTARTS {
            let remedy = format!("kubectl -n {} logs {} -c remora --previous", pod.namespace, pod.name);
            add(Level::Warning, &[name], &format!("the sidecar was restarted {} times", pod.restarts), &remedy);
        }
    }
    let is_known = |namespace: &str, name: &str| {
        environments.iter().any(|known| known.namespace == namespace && known.name == name)
    };
    for pod in pods {
        for name in pod.environments.iter().filter(|name| !is_known(&pod.namespace, name)) {
            let remedy =
                "create the FeatureEnvironment in the pod's namespace, or correct the annotation remora.dev/inject";
            let message = format!("the pod asks for FeatureEnvironment {name:?}, which its namespace does not have");
            add(Level::Error, &[format!("{}/{}", pod.namespace, pod.name)], &message, remedy);
        }
    }
    if !pods.is_empty() && findings.is_empty() {
        findings.push(Finding::ok(
            "pods",
            format!("each that asks for flags has a running sidecar: {}", counted(pods.len(), "pod")),
        ));
    }
    findings.extend(image.into_iter().flat_map(|image| outdated(pods, image)));
    findings.extend(quotas.iter().filter_map(quota));
    findings.extend(policies.iter().map(|name| {
        Finding::new(
            Level::Note,
            format!("NetworkPolicy {name}"),
            "sidecars of this namespace do not answer the controller, and this policy restricts ingress",
            "allow the controller's pods to connect to port remora-admin (4778) of pods with the label remora.dev/sidecar=injected",
        )
    }));
    findings
}

/// Derives one finding for each other image that sidecars have. After an upgrade they keep theirs until their pods are
/// replaced, so this is no fault.
fn outdated(pods: &[Requesting], image: &str) -> Vec<Finding> {
    let mut others: BTreeMap<&str, (usize, BTreeSet<&str>)> = BTreeMap::new();
    for pod in pods {
        let Some(other) = pod.image.as_deref().filter(|other| *other != image) else { continue };
        let (count, workloads) = others.entry(other).or_default();
        *count += 1;
        workloads.insert(&pod.workload);
    }
    let finding = |(other, (count, workloads)): (&str, (usize, BTreeSet<&str>))| {
        let shown: Vec<&str> = workloads.iter().take(WORKLOADS_NAMED).copied().collect();
        let more = match workloads.len().saturating_sub(WORKLOADS_NAMED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        Finding::new(
            Level::Note,
            format!("{}{more}", shown.join(", ")),
            format!("sidecar image {other} in {}, and new pods get {image}", counted(count, "pod")),
            "restart these workloads (kubectl rollout restart): their new pods get the image of the installation",
        )
    };
    others.into_iter().map(finding).collect()
}

fn named(names: &[String]) -> String {
    let plural = if names.len() == 1 { "pod" } else { "pods" };
    let shown: Vec<&str> = names.iter().take(NAMED).map(String::as_str).collect();
    match names.len().saturating_sub(NAMED) {
        0 => format!("{plural} {}", shown.join(", ")),
        more => format!("{plural} {} and {more} more", shown.join(", ")),
    }
}

fn quota(quota: &Quota) -> Option<Finding> {
    let Quota { namespace, name, resource, used, hard } = quota;
    if *hard <= 0 || used * 100 < hard * QUOTA_NEARLY_FULL {
        return None;
    }
    let level = if used >= hard { Level::Error } else { Level::Warning };
    Some(Finding::new(
        level,
        format!("ResourceQuota {namespace}/{name}"),
        format!("{used} of {hard} {resource} are used: a publication that needs one more is refused"),
        format!("raise the quota for {resource}, or lower spec.revisionHistoryLimit"),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::NamespacedName;

    /// A message, its level, and the change that causes it.
    type Fault = (&'static str, Level, fn(&mut Requesting));

    fn pod(change: impl FnOnce(&mut Requesting)) -> Workloads {
        let mut pod = Requesting {
            namespace: "shop".to_owned(),
            name: "web-1".to_owned(),
            environments: vec!["storefront".to_owned()],
            has_sidecar: true,
            ..Requesting::default()
        };
        change(&mut pod);
        let environments = vec![NamespacedName::new("shop", "storefront")];
        Workloads { pods: vec![pod], environments, ..Workloads::default() }
    }

    #[test]
    fn each_fault_of_a_pod_is_found() {
        assert_eq!(findings(&pod(|_| {}), None)[0].level, Level::Ok);
        assert!(findings(&Workloads::default(), None).is_empty());
        let table: [Fault; 4] = [
            ("has no sidecar", Level::Error, |pod| pod.has_sidecar = false),
            ("CrashLoopBackOff", Level::Error, |pod| pod.waits = Some("CrashLoopBackOff".to_owned())),
            ("restarted 3 times", Level::Warning, |pod| pod.restarts = 3),
            ("\"gone\", which its namespace does not have", Level::Error, |pod| {
                pod.environments.push("gone".to_owned());
            }),
        ];
        for (message, level, change) in table {
            let found = findings(&pod(change), None);
            assert_eq!(found.len(), 1, "{found:?}");
            assert!(found[0].message.contains(message) && found[0].level == level, "{found:?}");
            assert!(found[0].subject.contains("shop/web-1") && !found[0].remedy.is_empty(), "{found:?}");
        }
    }

    #[test]
    fn many_pods_are_one_finding() {
        let mut workloads = pod(|pod| pod.has_sidecar = false);
        let one = workloads.pods[0].clone();
        workloads.pods.extend((2..9).map(|n| Requesting { name: format!("web-{n}"), ..one.clone() }));
        let found = findings(&workloads, None);
        assert_eq!(found.len(), 1);
        assert!(
            found[0].subject.starts_with("pods shop/web-1, ") && found[0].subject.ends_with("and 3 more"),
            "{found:?}"
        );
    }

    #[test]
    fn workloads_with_another_image_are_listed_by_image() {
        let mut workloads = pod(|pod| pod.image = Some("sidecar:2".to_owned()));
        let one = workloads.pods[0].clone();
        let with = |name: &str, workload: &str, image: &str| Requesting {
            name: name.to_owned(),
            workload: workload.to_owned(),
            image: Some(image.to_owned()),
            ..one.clone()
        };
        assert_eq!(findings(&workloads, Some("sidecar:2")).len(), 1, "one finding that all is well");
        workloads.pods.push(with("old-1", "Deployment shop/old", "sidecar:1"));
        workloads.pods.push(with("old-2", "Deployment shop/old", "sidecar:1"));
        workloads.pods.push(with("older-1", "StatefulSet shop/older", "sidecar:0"));
        let found = findings(&workloads, Some("sidecar:2"));
        let notes: Vec<&Finding> = found.iter().filter(|finding| finding.level == Level::Note).collect();
        assert_eq!((found.len(), notes.len()), (3, 2), "{found:?}");
        assert_eq!(notes[1].subject, "Deployment shop/old");
        assert!(notes[1].message.starts_with("sidecar image sidecar:1 in 2 pods, "), "{found:?}");
        assert_eq!(notes[0].subject, "StatefulSet shop/older");
        assert_eq!(findings(&workloads, None).len(), 1, "the image of new pods is not known");

        workloads.pods = (0..60).map(|n| with("p", &format!("Deployment shop/{n:02}"), "sidecar:1")).collect();
        let found = findings(&workloads, Some("sidecar:2"));
        let subject = &found.last().unwrap().subject;
        assert!(subject.ends_with("Deployment shop/49 and 10 more"), "{subject}");
    }

    #[test]
    fn quota_is_judged_by_its_room() {
        let level = |used, hard| {
            let resource = "count/configmaps".to_owned();
            quota(&Quota { namespace: "shop".to_owned(), name: "few".to_owned(), resource, used, hard })
                .map(|finding| finding.level)
        };
        assert_eq!(level(89, 100), None);
        assert_eq!(level(90, 100), Some(Level::Warning));
        assert_eq!(level(100, 100), Some(Level::Error));
        assert_eq!(level(0, 0), None);
    }

    #[test]
    fn policy_that_hides_sidecars_is_named() {
        let policies = vec![NamespacedName::new("shop", "closed")];
        let found = findings(&Workloads { policies, ..Workloads::default() }, None);
        assert!(found[0].subject.ends_with("shop/closed") && found[0].remedy.contains("4778"), "{found:?}");
    }
}
