//! `status.changes`: flags that differ between two revisions.

use std::fmt;

use kube::KubeSchema;
use serde::{Deserialize, Serialize};

use super::Revision;

/// Flags that differ between a revision and the one that it replaced. Values are never part of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Changes {
    /// Revision that was published before.
    pub previous: Revision,
    /// Number of flags that differ: in their state, value, variants, overrides by segments or visibility. 0 if only
    /// conditions of segments, overrides of identities or keys differ.
    pub count: i64,
    /// Names of changed flags that both revisions have. The three lists have at most ten names together.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changed: Vec<String>,
    /// Names of flags that only this revision has.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub added: Vec<String>,
    /// Names of flags that only the previous revision has.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub removed: Vec<String>,
}

impl fmt::Display for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.count {
            0 => return f.write_str("no flag changed, only conditions of segments, overrides of identities or keys"),
            1 => f.write_str("1 flag changed: ")?,
            count => write!(f, "{count} flags changed: ")?,
        }
        let lists = [(&self.changed, ""), (&self.added, " (added)"), (&self.removed, " (removed)")];
        let mut named = 0;
        for (names, suffix) in lists {
            for name in names {
                let comma = if named == 0 { "" } else { ", " };
                write!(f, "{comma}\"{name}\"{suffix}")?;
                named += 1;
            }
        }
        match self.count.saturating_sub(named) {
            ..=0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_count_has_a_text() {
        let changes = Changes { count: i64::MIN, changed: vec!["a".to_owned()], ..Changes::default() };
        assert!(changes.to_string().contains("\"a\""), "{changes}");
    }

    #[test]
    fn text_names_each_list_and_counts_the_rest() {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let mut changes = Changes { previous: Revision::new("abc"), ..Changes::default() };
        assert_eq!(
            changes.to_string(),
            "no flag changed, only conditions of segments, overrides of identities or keys"
        );
        (changes.count, changes.changed) = (1, names(&["a"]));
        assert_eq!(changes.to_string(), "1 flag changed: \"a\"");
        (changes.added, changes.removed, changes.count) = (names(&["b"]), names(&["c"]), 5);
        assert_eq!(changes.to_string(), "5 flags changed: \"a\", \"b\" (added), \"c\" (removed) and 2 more");
    }
}
