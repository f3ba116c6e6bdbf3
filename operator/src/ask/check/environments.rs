//! Findings about FeatureEnvironments. Pure.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt;
use remora_tools::counted;

use super::finding::{Finding, Level};
use crate::{
    api::{FeatureEnvironment, FeatureEnvironmentStatus, Revision, names::annotation},
    controller::status::{ACCEPTED, FETCHED, PUBLISHED, READY, STALE},
};

/// Derives the findings, for each environment in order.
pub(super) fn findings(environments: &[FeatureEnvironment]) -> Vec<Finding> {
    if environments.is_empty() {
        let remedy = "create one in the namespace of an application: see Remora's README";
        return vec![Finding::new(Level::Note, "FeatureEnvironments", "there are none", remedy)];
    }
    environments.iter().flat_map(of_environment).collect()
}

fn of_environment(environment: &FeatureEnvironment) -> Vec<Finding> {
    let (namespace, name) = (environment.namespace().unwrap_or_default(), environment.name_any());
    let subject = format!("FeatureEnvironment {namespace}/{name}");
    let Some(status) = &environment.status else {
        let remedy = "check that a controller holds the lease, and that it watches this namespace";
        return vec![Finding::new(Level::Error, subject, "the controller has not seen it", remedy)];
    };
    let mut findings = conditions(&subject, status);
    if status.observed_generation < environment.metadata.generation {
        let remedy = "check that a controller holds the lease, and that it watches this namespace";
        findings.push(Finding::new(Level::Error, &subject, "the controller has not seen the last edit", remedy));
    }
    if let Some(held) = &status.held_revision {
        let remedy = format!(
            "kubectl -n {namespace} annotate fenv {name} --overwrite {}={held}, or repair the source",
            annotation::CONFIRM
        );
        findings.push(Finding::new(Level::Warning, &subject, format!("revision {held} is held back"), remedy));
    }
    findings.extend(pods(&subject, &namespace, &name, status));
    let by_choice = [
        (environment.spec.suspend, "spec.suspend is true", "set it to false when it is no longer needed"),
        (!environment.spec.pin.is_empty(), "spec.pin keeps a revision", "remove spec.pin to publish the newest one"),
    ];
    for (_, message, remedy) in by_choice.into_iter().filter(|(applies, ..)| *applies) {
        findings.push(Finding::new(Level::Note, &subject, message, remedy));
    }
    if let Some(count) = status.finding_count.filter(|count| *count > 0) {
        let remedy = format!("kubectl -n {namespace} describe fenv {name} lists them");
        let message = format!("the document has {}", counted(count, "finding"));
        findings.push(Finding::new(Level::Note, &subject, message, remedy));
    }
    if findings.iter().all(|finding| finding.level <= Level::Note) {
        let revision = status.revision.as_ref().map_or("none", Revision::as_str);
        findings.insert(0, Finding::ok(&subject, format!("revision {revision} is published and confirmed")));
    }
    findings
}

fn conditions(subject: &str, observed: &FeatureEnvironmentStatus) -> Vec<Finding> {
    let is = |kind: &str, status: &str| observed.condition(kind).filter(|condition| condition.status == status);
    let finding = |level, condition: &Condition| {
        let Condition { type_, status, reason, message, .. } = condition;
        let remedy = format!("the message says what to do; the operator's README explains {reason}");
        Finding::new(level, subject, format!("{type_} is {status} ({reason}): {message}"), remedy)
    };
    let mut findings = Vec::new();
    findings.extend(is(READY, "False").map(|ready| finding(Level::Error, ready)));
    // A refused spec makes Fetched false as well, with the same message.
    let cause = is(ACCEPTED, "False").or_else(|| is(FETCHED, "False"));
    findings.extend(cause.map(|cause| finding(Level::Warning, cause)));
    let published =
        is(PUBLISHED, "False").filter(|published| Some(&published.message) != cause.map(|cause| &cause.message));
    findings.extend(published.filter(|published| published.reason != "Pending").map(|it| finding(Level::Warning, it)));
    findings.extend(is(STALE, "True").map(|stale| finding(Level::Error, stale)));
    findings
}

fn pods(subject: &str, namespace: &str, name: &str, status: &FeatureEnvironmentStatus) -> Option<Finding> {
    let pods = status.pods.as_ref()?;
    if pods.behind == 0 && pods.silent == 0 {
        return None;
    }
    let message = format!(
        "{} of {} pods serve another revision, and {} do not answer the controller{}",
        pods.behind,
        pods.total,
        pods.silent,
        pods.problem.as_ref().map(|problem| format!(": {problem}")).unwrap_or_default()
    );
    let remedy = format!("kubectl remora pods {name} -n {namespace} names each pod with its cause");
    Some(Finding::new(Level::Warning, subject, message, remedy))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn environment(change: impl FnOnce(&mut Value)) -> FeatureEnvironment {
        let condition = |kind: &str, status: &str| {
            json!({
                "type": kind, "status": status, "reason": "Fine", "message": "fine",
                "lastTransitionTime": "2026-11-20T00:00:00Z",
            })
        };
        let good = ["Accepted", "Fetched", "Published", "Ready"].map(|kind| condition(kind, "True"));
        let mut conditions = good.to_vec();
        conditions.push(condition("Stale", "False"));
        let mut object = json!({
            "apiVersion": "remora.dev/v1alpha1", "kind": "FeatureEnvironment",
            "metadata": {"name": "storefront", "namespace": "shop", "generation": 2},
            "spec": {"source": {"document": {"configMapKeyRef": {"name": "flags", "key": "a"}}}},
            "status": {"observedGeneration": 2, "revision": "3f9c2a7b10de", "conditions": conditions},
        });
        change(&mut object);
        serde_json::from_value(object).unwrap()
    }

    /// Returns level and message of the findings.
    fn found(change: impl FnOnce(&mut Value)) -> Vec<(Level, String)> {
        let findings = findings(&[environment(change)]);
        for finding in &findings {
            assert_eq!(finding.level == Level::Ok, finding.remedy.is_empty(), "{finding:?}");
        }
        findings.into_iter().map(|finding| (finding.level, finding.message)).collect()
    }

    /// A message, its level, and the change that causes it.
    type Fault = (&'static str, Level, fn(&mut Value));

    fn fails(object: &mut Value, place: usize, reason: &str) {
        let condition = &mut object["status"]["conditions"][place];
        condition["status"] = json!(if place == 4 { "True" } else { "False" });
        condition["reason"] = json!(reason);
        condition["message"] = json!(format!("{reason}: do this"));
    }

    #[test]
    fn each_fault_of_an_environment_is_found() {
        let ok = found(|_| {});
        assert_eq!(ok, [(Level::Ok, "revision 3f9c2a7b10de is published and confirmed".to_owned())]);
        let table: [Fault; 9] = [
            ("not seen it", Level::Error, |object| object["status"] = Value::Null),
            ("not seen the last edit", Level::Error, |object| object["metadata"]["generation"] = json!(3)),
            ("Ready is False (NothingPublished)", Level::Error, |object| fails(object, 3, "NothingPublished")),
            ("Fetched is False (RateLimited)", Level::Warning, |object| fails(object, 1, "RateLimited")),
            ("Published is False (QuotaExceeded)", Level::Warning, |object| fails(object, 2, "QuotaExceeded")),
            ("Stale is True (Stale)", Level::Error, |object| fails(object, 4, "Stale")),
            ("revision abc is held back", Level::Warning, |object| object["status"]["heldRevision"] = json!("abc")),
            ("1 of 3 pods serve another", Level::Warning, |object| {
                object["status"]["pods"] = json!({"total": 3, "current": 2, "behind": 1, "silent": 0});
            }),
            ("2 findings", Level::Note, |object| object["status"]["findingCount"] = json!(2)),
        ];
        for (message, level, change) in table {
            let found = found(change);
            assert!(found.iter().any(|(is, says)| *is == level && says.contains(message)), "{message}: {found:?}");
        }
    }

    #[test]
    fn one_cause_is_one_finding() {
        let found = found(|object| {
            fails(object, 0, "SecretNotFound");
            fails(object, 1, "SecretNotFound");
        });
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].1.starts_with("Accepted is False (SecretNotFound)"), "{found:?}");
    }

    #[test]
    fn choices_of_the_owner_are_notes() {
        let notes = found(|object| {
            object["spec"]["suspend"] = json!(true);
            object["spec"]["pin"] = json!("3f9c2a7b10de");
        });
        let levels: Vec<Level> = notes.iter().map(|(level, _)| *level).collect();
        assert_eq!(levels, [Level::Ok, Level::Note, Level::Note], "{notes:?}");
        assert_eq!(findings(&[])[0].level, Level::Note);
    }
}
