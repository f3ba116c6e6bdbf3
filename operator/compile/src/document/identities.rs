//! Merges identity overrides to one entry per identifier and one flag per feature. Flagsmith's rule decides between
//! duplicates, not their order of arrival.

use std::collections::{HashMap, HashSet};

use super::{Document, Identity};

impl Document {
    /// Merges entries of one identifier, and flags of one feature within an entry.
    ///
    /// Flagsmith's SDKs group identities with equal flags. Groups are ordered by the first occurrence of their flags in
    /// the document, and the first group that contains a feature decides it. Within an entry, the first flag counts.
    pub(crate) fn merge_identities(&mut self) {
        for identity in &mut self.identity_overrides {
            // The sort is stable: the first of two flags of one feature stays the first.
            identity.identity_features.sort_by(|a, b| a.feature.name.cmp(&b.feature.name));
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
        // Removing duplicates earlier would change groups: an entry with two flags of one feature belongs to another
        // group than an entry with only the first of them.
        for identity in &mut self.identity_overrides {
            identity.identity_features.dedup_by(|a, b| a.feature.name == b.feature.name);
        }
    }
}

fn merged(identities: Vec<Identity>) -> Vec<Identity> {
    let mut groups = HashMap::new();
    let ranks: Vec<usize> = identities
        .iter()
        .map(|identity| {
            let content = identity.identity_features.iter().map(|flag| {
                let variants = flag.variants.as_ref().map(|variants| variants.content());
                (&*flag.feature.name, flag.enabled, flag.feature_state_value.token(), variants)
            });
            let next = groups.len();
            *groups.entry(content.collect::<Vec<_>>()).or_insert(next)
        })
        .collect();
    let mut ranked: Vec<(usize, Identity)> = ranks.into_iter().zip(identities).collect();
    ranked.sort_by_key(|(rank, _)| *rank);

    let mut places: HashMap<String, usize> = HashMap::new();
    let mut merged: Vec<Identity> = Vec::new();
    for (_, identity) in ranked {
        match places.get(&identity.identifier).and_then(|place| merged.get_mut(*place)) {
            Some(first) => first.identity_features.extend(identity.identity_features),
            None => {
                places.insert(identity.identifier.clone(), merged.len());
                merged.push(identity);
            }
        }
    }
    for identity in &mut merged {
        let mut held: HashSet<Box<str>> = HashSet::new();
        identity.identity_features.retain(|flag| held.insert(flag.feature.name.clone()));
    }
    merged
}

#[cfg(test)]
mod tests {
    use crate::document::parse;

    #[test]
    fn identity_with_two_flags_of_one_feature_has_own_group() {
        let flag = |enabled: bool| {
            format!(r#"{{"feature":{{"id":1,"name":"f"}},"enabled":{enabled},"feature_state_value":{enabled}}}"#)
        };
        let entry = |who: &str, flags: &[bool]| {
            let flags: Vec<String> = flags.iter().map(|enabled| flag(*enabled)).collect();
            format!(r#"{{"identifier":"{who}","identity_features":[{}]}}"#, flags.join(","))
        };
        // Without its second flag, the last entry would be in the first entry's group, which precedes the second
        // entry's.
        let entries = [entry("one", &[true]), entry("two", &[false]), entry("two", &[true, false])].join(",");
        let text = format!(
            r#"{{"api_key":"k","updated_at":"","project":{{}},"feature_states":[],"identity_overrides":[{entries}]}}"#
        );
        let mut document = parse(text.as_bytes()).unwrap();
        document.merge_identities();
        let merged: Vec<(&str, Vec<bool>)> = document
            .identity_overrides
            .iter()
            .map(|entry| (entry.identifier.as_str(), entry.identity_features.iter().map(|flag| flag.enabled).collect()))
            .collect();
        assert_eq!(merged, [("one", vec![true]), ("two", vec![false])]);
    }
}
