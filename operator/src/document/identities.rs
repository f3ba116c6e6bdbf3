//! One entry an identifier, one flag a feature: which of several counts is Flagsmith's rule, not the order of arrival.

use std::collections::HashMap;

use super::{Document, Identity, IdentityFeature};

impl Document {
    /// Merges entries of one identifier, and flags of one feature within an entry.
    ///
    /// Flagsmith's SDKs group identities with equal flags; groups stand in the order in which their flags first occur in
    /// the document, and the first group that has a feature decides it. Within an entry the first flag counts.
    pub(crate) fn settle_identities(&mut self) {
        for identity in &mut self.identity_overrides {
            // Stable: of two flags of one feature the first stays.
            identity.identity_features.sort_by(|a, b| a.feature.name.cmp(&b.feature.name));
            identity.identity_features.dedup_by(|a, b| a.feature.name == b.feature.name);
        }
        let mut entries: HashMap<&str, usize> = HashMap::with_capacity(self.identity_overrides.len());
        let mut has_doubles = false;
        for identity in &self.identity_overrides {
            let count = entries.entry(&identity.identifier).or_default();
            *count += 1;
            has_doubles |= *count > 1;
        }
        if has_doubles {
            let identities = std::mem::take(&mut self.identity_overrides);
            self.identity_overrides = merged(identities);
        }
    }
}

fn merged(identities: Vec<Identity>) -> Vec<Identity> {
    let mut groups: HashMap<Vec<(&str, bool, &str)>, usize> = HashMap::new();
    let ranks: Vec<usize> = identities
        .iter()
        .map(|identity| {
            let content =
                identity.identity_features.iter().map(|f| (&*f.feature.name, f.enabled, f.feature_state_value.token()));
            let next = groups.len();
            *groups.entry(content.collect()).or_insert(next)
        })
        .collect();
    let mut ranked: Vec<(usize, Identity)> = ranks.into_iter().zip(identities).collect();
    ranked.sort_by_key(|(rank, _)| *rank);

    let mut places: HashMap<String, usize> = HashMap::new();
    let mut merged: Vec<Identity> = Vec::new();
    for (_, identity) in ranked {
        match places.get(&identity.identifier).and_then(|place| merged.get_mut(*place)) {
            Some(first) => add(&mut first.identity_features, identity.identity_features),
            None => {
                places.insert(identity.identifier.clone(), merged.len());
                merged.push(identity);
            }
        }
    }
    merged
}

fn add(flags: &mut Vec<IdentityFeature>, later: Vec<IdentityFeature>) {
    for flag in later {
        if !flags.iter().any(|held| held.feature.name == flag.feature.name) {
            flags.push(flag);
        }
    }
}
