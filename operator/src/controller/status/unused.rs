//! The finding about flags that no application uses.

use remora_compile::listed_of;

use crate::api::{FeatureEnvironmentStatus, Finding, IdleFlags};

/// Subject of the finding.
const SUBJECT: &str = "unused flags";

/// Replaces the finding by what `idle` says. It comes first, in addition to those of the document.
pub(super) fn replace(status: &mut FeatureEnvironmentStatus, idle: Option<&IdleFlags>) {
    let before = status.findings.len();
    status.findings.retain(|finding| finding.subject != SUBJECT);
    let removed = i64::from(status.findings.len() < before);
    let found = idle.and_then(finding);
    let count =
        status.finding_count.unwrap_or_default().saturating_sub(removed).saturating_add(i64::from(found.is_some()));
    if removed > 0 || found.is_some() {
        status.finding_count = Some(count);
    }
    status.findings.splice(0..0, found);
}

fn finding(idle: &IdleFlags) -> Option<Finding> {
    let unused = usize::try_from(idle.unused).ok().filter(|unused| *unused > 0)?;
    let names: Vec<&str> = idle.flags.iter().take(unused).map(|idle| idle.flag.as_str()).collect();
    Some(Finding {
        subject: SUBJECT.to_owned(),
        message: format!(
            "no application used {unused} {} for 30 days, of the uses that SDKs report and single evaluations by OFREP: {}; remove them from applications and from Flagsmith, or have their uses reported. status.idleFlags has the days",
            if unused == 1 { "flag" } else { "flags" },
            listed_of(&names, unused)
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::IdleFlag;

    fn idle(unused: usize) -> IdleFlags {
        let flag = |number: usize| IdleFlag { flag: format!("old-{number}"), since: "2026-09-01".to_owned() };
        IdleFlags {
            since: "2026-09-01".to_owned(),
            until: "2026-11-22".to_owned(),
            last_use: Some("2026-11-22".to_owned()),
            count: 9,
            unused: i64::try_from(unused).unwrap(),
            flags: (0..unused.min(200)).map(flag).collect(),
        }
    }

    #[test]
    fn finding_about_unused_flags_names_five_and_follows_their_number() {
        let other = Finding { subject: "core".to_owned(), message: "large".to_owned() };
        let mut status = FeatureEnvironmentStatus {
            findings: vec![other.clone()],
            finding_count: Some(30),
            ..FeatureEnvironmentStatus::default()
        };
        for _ in 0..2 {
            replace(&mut status, Some(&idle(300)));
            assert_eq!((status.findings.len(), status.finding_count), (2, Some(31)));
            let Finding { subject, message } = &status.findings[0];
            assert!(subject == "unused flags" && message.contains("used 300 flags for 30 days"), "{message}");
            assert!(message.contains("\"old-0\"") && message.contains("\"old-4\" and 295 more;"), "{message}");
        }
        replace(&mut status, Some(&idle(0)));
        assert_eq!((status.findings, status.finding_count), (vec![other], Some(30)));
    }
}
