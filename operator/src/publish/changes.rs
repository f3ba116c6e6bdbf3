//! Flags that differ between two snapshots, by name. Pure.

use std::{collections::BTreeMap, hash::RandomState};

use remora_compile::document::printable;
use remora_snapshot::{FeatureDigest, Snapshot};

use crate::api::{Changes, Revision};

/// Number of flags that are named. The count covers all.
const NAMES_MAX: usize = 10;
/// Number of characters of a name that are kept.
const NAME_MAX: usize = 80;

/// Compares the flags of two cores. `None` if one of them cannot be read.
pub fn between(previous: &[u8], core: &[u8]) -> Option<Changes> {
    let (previous, core) = (Snapshot::read(previous).ok()?, Snapshot::read(core).ok()?);
    // The keys are random, so the author of a document cannot give two states the same digest.
    let keys = RandomState::new();
    let (before, after) = (previous.feature_digests(&keys)?, core.feature_digests(&keys)?);
    Some(compare(Revision::new(previous.revision().to_string()), &before, &after))
}

fn compare(previous: Revision, before: &[FeatureDigest<'_>], after: &[FeatureDigest<'_>]) -> Changes {
    let (before, after) = (by_name(before), by_name(after));
    let shared = after.iter().filter_map(|(name, now)| Some((name, before.get(name)?, now)));
    let mut changed: Vec<&&str> = shared.filter(|(_, was, now)| was != now).map(|(name, ..)| name).collect();
    let mut added: Vec<&&str> = after.keys().filter(|name| !before.contains_key(*name)).collect();
    let mut removed: Vec<&&str> = before.keys().filter(|name| !after.contains_key(*name)).collect();
    let count = changed.len() + added.len() + removed.len();
    let mut room = NAMES_MAX;
    for names in [&mut changed, &mut added, &mut removed] {
        names.truncate(room);
        room -= names.len();
    }
    let named = |names: Vec<&&str>| names.into_iter().map(|name| printable(name, NAME_MAX)).collect();
    Changes {
        previous,
        count: i64::try_from(count).unwrap_or(i64::MAX),
        changed: named(changed),
        added: named(added),
        removed: named(removed),
    }
}

fn by_name<'a>(features: &[FeatureDigest<'a>]) -> BTreeMap<&'a str, u64> {
    features.iter().map(|feature| (feature.name, feature.digest)).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use remora_compile::{
        Options, compile,
        document::parse,
        prune::{Rules, prune},
    };

    /// Compiles a document with these features: name, state and value.
    fn core(features: &[(&str, bool, &str)]) -> Vec<u8> {
        let states: Vec<Value> = features
            .iter()
            .map(|(name, enabled, value)| {
                let id = name.bytes().fold(1_u32, |id, byte| id.wrapping_mul(31).wrapping_add(byte.into()) % 100_000);
                json!({
                    "feature": {"id": id, "name": name, "type": "STANDARD"}, "enabled": enabled, "django_id": id,
                    "feature_state_value": value, "multivariate_feature_state_values": [],
                })
            })
            .collect();
        let document = json!({"id": 1, "api_key": "client", "project": {}, "feature_states": states}).to_string();
        let pruned = prune(parse(document.as_bytes()).unwrap(), &Rules::default());
        let compiled = compile(&pruned, &Options::default()).unwrap();
        compiled.files.into_iter().next().unwrap().bytes
    }

    fn changes(before: &[(&str, bool, &str)], after: &[(&str, bool, &str)]) -> Changes {
        between(&core(before), &core(after)).unwrap()
    }

    #[test]
    fn changes_of_state_value_and_presence_are_named() {
        let before = [("same", true, "1"), ("flipped", true, "1"), ("gone", true, "1"), ("valued", true, "1")];
        let after = [("same", true, "1"), ("flipped", false, "1"), ("new", true, "1"), ("valued", true, "secret")];
        let found = changes(&before, &after);
        assert_eq!((found.count, found.previous.as_str().len()), (4, 12));
        assert_eq!(
            (found.changed, found.added, found.removed),
            (vec!["flipped".to_owned(), "valued".to_owned()], vec!["new".to_owned()], vec!["gone".to_owned()])
        );
        assert!(!format!("{:?}", changes(&before, &after)).contains("secret"));
        assert_eq!(changes(&before, &before).count, 0);
    }

    #[test]
    fn names_are_bounded_and_all_are_counted() {
        let long = "x".repeat(500);
        let names: Vec<String> = (0..40).map(|n| format!("{n:02}\n{long}")).collect();
        let features: Vec<(&str, bool, &str)> = names.iter().map(|name| (name.as_str(), true, "1")).collect();
        let found = changes(&[("a", true, "1")], &features);
        assert_eq!((found.count, found.added.len(), found.removed.len()), (41, 10, 0));
        assert!(found.added.iter().all(|name| name.len() < 100 && !name.contains('\n')), "{found:?}");
    }

    #[test]
    fn unreadable_core_has_no_changes() {
        assert_eq!(between(b"nothing", &core(&[("a", true, "1")])), None);
    }
}
