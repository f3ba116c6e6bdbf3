//! Hints about a document that works, but less well than its authors may expect. Each hint says what to do.

use std::collections::HashMap;

use remora_snapshot::model::Environment;

use super::finding::Finding;
use crate::document::{Document, quoted};

/// Number of overrides of one feature beyond which they are a list rather than exceptions.
const MANY_OVERRIDES: usize = 5_000;

/// Number of characters beyond which an identifier is unlikely to be a name. Flagsmith allows 2,000 characters.
const LONG_IDENTIFIER: usize = 256;

/// Number of bytes beyond which a value is a document rather than a setting. Flagsmith's own limit is 20,000 bytes.
const LARGE_VALUE: usize = 20_000;

/// Maximum number of names that a hint lists.
const LISTED: usize = 5;

/// Returns the hints about a document and its model.
pub(super) fn review(document: &Document, environment: &Environment) -> Vec<Finding> {
    let mut findings = Vec::new();
    findings.extend(left_out_overrides(document));
    findings.extend(lists(environment));
    findings.extend(long_identifiers(environment));
    findings.extend(large_values(environment));
    findings.extend(unused_segments(document));
    findings.extend(constant_features(environment));
    findings
}

/// Returns a hint if the server keeps the identity overrides to itself. Environments from before September 2024 do so, unless
/// somebody changed the setting.
fn left_out_overrides(document: &Document) -> Option<Finding> {
    (document.use_identity_overrides_in_local_eval == Some(false)).then(|| Finding {
        subject: "identity overrides".to_owned(),
        message: "the document has none, because the environment's setting \"Use identity overrides in local evaluation\" is off, and Flagsmith's API applies them all the same; switch it on if an identity has an override"
            .to_owned(),
    })
}

/// Returns a hint for each feature that thousands of identities override one by one.
fn lists(environment: &Environment) -> Vec<Finding> {
    let mut counts: HashMap<i64, usize> = HashMap::new();
    for flag in environment.identity_overrides.iter().flat_map(|identity| &identity.flags) {
        *counts.entry(flag.feature).or_default() += 1;
    }
    let mut findings = Vec::new();
    for feature in &environment.features {
        if let Some(count) = counts.get(&feature.id).filter(|count| **count > MANY_OVERRIDES) {
            findings.push(Finding {
                subject: format!("feature {}", quoted(&feature.name)),
                message: format!(
                    "{count} identities have an override of their own; send a trait that they share, and override the feature for a segment"
                ),
            });
        }
    }
    findings
}

fn long_identifiers(environment: &Environment) -> Option<Finding> {
    let long = environment.identity_overrides.iter().map(|identity| identity.identifier.chars().count());
    let (count, longest) = long
        .filter(|length| *length > LONG_IDENTIFIER)
        .fold((0, 0), |(count, most), length| (count + 1, most.max(length)));
    // The message omits the identifiers, because they may be personal.
    (count > 0).then(|| Finding {
        subject: "identity overrides".to_owned(),
        message: format!(
            "{count} identifiers are longer than {LONG_IDENTIFIER} characters (the longest has {longest}); use short and stable identifiers"
        ),
    })
}

fn large_values(environment: &Environment) -> Vec<Finding> {
    let large = environment.features.iter().filter(|feature| feature.default.value.len() > LARGE_VALUE);
    large
        .map(|feature| Finding {
            subject: format!("feature {}", quoted(&feature.name)),
            message: format!(
                "its value has {} bytes, which are part of every answer; store the content elsewhere and a reference in the flag",
                feature.default.value.len()
            ),
        })
        .collect()
}

fn unused_segments(document: &Document) -> Option<Finding> {
    let segments = &document.project.segments;
    let unused: Vec<&str> = segments
        .iter()
        .filter(|segment| segment.feature_states.is_empty())
        .map(|segment| segment.name.as_str())
        .collect();
    (!unused.is_empty()).then(|| Finding {
        subject: "segments".to_owned(),
        message: format!(
            "{} of {} override no feature of this environment, and are left out: {}",
            unused.len(),
            segments.len(),
            listed(&unused)
        ),
    })
}

/// Returns a hint about features with the same answer for everybody. It is useful only if other features vary.
fn constant_features(environment: &Environment) -> Option<Finding> {
    let mut varies = vec![false; environment.features.len()];
    let ids: HashMap<i64, usize> =
        environment.features.iter().enumerate().map(|(index, feature)| (feature.id, index)).collect();
    let by_segment = environment.segments.iter().flat_map(|segment| &segment.overrides).map(|own| own.feature);
    let by_identity = environment.identity_overrides.iter().flat_map(|identity| &identity.flags);
    let by_identity = by_identity.filter_map(|flag| ids.get(&flag.feature).copied());
    let split = environment.features.iter().enumerate().filter(|(_, feature)| feature.default.split.is_some());
    for index in by_segment.chain(by_identity).chain(split.map(|(index, _)| index)) {
        if let Some(place) = varies.get_mut(index) {
            *place = true;
        }
    }
    let same: Vec<&str> = environment
        .features
        .iter()
        .zip(&varies)
        .filter(|(feature, varies)| feature.served && !**varies)
        .map(|(feature, _)| feature.name.as_str())
        .collect();
    (!same.is_empty() && same.len() < environment.features.len()).then(|| Finding {
        subject: "features".to_owned(),
        message: format!(
            "{} of {} have the same value for everybody (no segment, split or identity override): {}",
            same.len(),
            environment.features.len(),
            listed(&same)
        ),
    })
}

pub(super) fn listed(names: &[&str]) -> String {
    listed_of(names, names.len())
}

/// Lists the first of `count` names, and says how many more there are.
pub fn listed_of(names: &[&str], count: usize) -> String {
    let mut text = names.iter().take(LISTED).map(|name| quoted(name)).collect::<Vec<_>>().join(", ");
    if count > LISTED {
        text.push_str(&format!(" and {} more", count - LISTED));
    }
    text
}
