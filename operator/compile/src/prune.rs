//! Pruning (pure): removes what the spec does not ask for. The answers of kept flags do not change.

use std::collections::HashSet;

use globset::{Glob, GlobSet, GlobSetBuilder};

use crate::{
    Progress,
    document::{Document, Rule},
    property,
};

/// Maximum number of globs in each list, as in the CRD. `remora-operator compile` reads rules that no API server checked.
pub const MOST_GLOBS: usize = 100;

/// Maximum length of a glob in characters, as in the CRD.
pub const LONGEST_GLOB: usize = 256;

/// Choice of what to keep. Default: everything.
#[derive(Debug, Clone, Copy, Default)]
pub struct Selection<'a> {
    /// Globs for the names of features to keep. All features if it is empty.
    pub include: &'a [String],
    /// Globs for the names of features to leave out.
    pub exclude: &'a [String],
    /// Leaves out features that are server-side only.
    pub drop_server_only: bool,
    /// Leaves out the overrides of identities.
    pub drop_identity_overrides: bool,
}

/// Compiled rules of what to keep. Default: everything.
#[derive(Debug, Clone, Default)]
pub struct Rules {
    /// `None` keeps all features that `exclude` does not match.
    include: Option<GlobSet>,
    exclude: GlobSet,
    drop_server_only: bool,
    drop_identity_overrides: bool,
}

/// Error: a glob is invalid, or exceeds a limit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A list of `spec.prune.features` has more than [`MOST_GLOBS`] globs.
    #[error(
        "spec.prune.features.{list} has {count} globs, more than {MOST_GLOBS}: write fewer, as checkout_* for all that begin alike"
    )]
    TooMany {
        /// List: `include` or `exclude`.
        list: &'static str,
        /// Number of its globs.
        count: usize,
    },
    /// A glob of `spec.prune.features` is longer than [`LONGEST_GLOB`].
    #[error(
        "spec.prune.features.{list}[{index}] has {length} characters, more than {LONGEST_GLOB}: write a shorter glob, as checkout_*"
    )]
    TooLong {
        /// List of the glob: `include` or `exclude`.
        list: &'static str,
        /// Index of the glob in its list.
        index: usize,
        /// Length of the glob in characters.
        length: usize,
    },
    /// A glob of `spec.prune.features` is invalid.
    #[error(
        "spec.prune.features.{list}: {pattern:?} is not a glob: {problem}; use names with *, ? or [abc], such as checkout_*"
    )]
    Pattern {
        /// List of the glob: `include` or `exclude`.
        list: &'static str,
        /// Text of the glob.
        pattern: String,
        /// Problem of the glob.
        problem: String,
    },
}

impl Rules {
    /// Compiles the globs of a selection.
    ///
    /// # Errors
    /// A glob is invalid or exceeds a limit. The error names the first one.
    pub fn compile(selection: &Selection<'_>) -> Result<Self, Error> {
        let Selection { include, exclude, drop_server_only, drop_identity_overrides } = *selection;
        let include = if include.is_empty() { None } else { Some(globs("include", include)?) };
        Ok(Self { include, exclude: globs("exclude", exclude)?, drop_server_only, drop_identity_overrides })
    }

    fn keeps(&self, name: &str) -> bool {
        self.include.as_ref().is_none_or(|include| include.is_match(name)) && !self.exclude.is_match(name)
    }
}

fn globs(list: &'static str, patterns: &[String]) -> Result<GlobSet, Error> {
    let error = |pattern: &str, error: &globset::Error| Error::Pattern {
        list,
        pattern: pattern.to_owned(),
        problem: error.kind().to_string(),
    };
    if patterns.len() > MOST_GLOBS {
        return Err(Error::TooMany { list, count: patterns.len() });
    }
    let mut set = GlobSetBuilder::new();
    for (index, pattern) in patterns.iter().enumerate() {
        let length = pattern.chars().count();
        if length > LONGEST_GLOB {
            return Err(Error::TooLong { list, index, length });
        }
        set.add(Glob::new(pattern).map_err(|problem| error(pattern, &problem))?);
    }
    set.build().map_err(|problem| error(&patterns.join(", "), &problem))
}

/// A pruned document, and the features in it that are not served.
#[derive(Debug, Clone)]
pub struct Pruned {
    /// Document without the pruned parts.
    pub document: Document,
    /// Names of features that are not served, and are kept because conditions read them.
    pub unserved: HashSet<String>,
}

impl Pruned {
    /// Iterates over the names of served features.
    pub fn served(&self) -> impl Iterator<Item = &str> {
        let names = self.document.feature_states.iter().map(|state| state.feature.name.as_str());
        names.filter(|name| !self.unserved.contains(*name))
    }
}

/// Removes features with their overrides, and identity overrides if the rules drop them.
#[must_use]
pub fn prune(document: Document, rules: &Rules) -> Pruned {
    prune_with_progress(document, rules, Progress::default())
}

/// Prunes, and reports the current segment to `progress`.
pub fn prune_with_progress(mut document: Document, rules: &Rules, progress: Progress<'_>) -> Pruned {
    document.merge_identities();
    let server_only: HashSet<i64> = document.project.server_key_only_feature_ids.iter().copied().collect();
    let served: HashSet<String> = document
        .feature_states
        .iter()
        .map(|state| &state.feature)
        .filter(|feature| rules.keeps(&feature.name) && !(rules.drop_server_only && server_only.contains(&feature.id)))
        .map(|feature| feature.name.clone())
        .collect();
    let mut read = HashSet::new();
    for segment in &document.project.segments {
        progress.at_segment(&segment.name, segment.id);
        features_read(&segment.rules, &mut read);
    }
    let unserved: HashSet<String> = document
        .feature_states
        .iter()
        .map(|state| &state.feature.name)
        .filter(|name| read.contains(name.as_str()) && !served.contains(name.as_str()))
        .cloned()
        .collect();

    let keeps = |name: &str| served.contains(name) || unserved.contains(name);
    document.feature_states.retain(|state| keeps(&state.feature.name));
    for segment in &mut document.project.segments {
        segment.feature_states.retain(|state| keeps(&state.feature.name));
    }
    if rules.drop_identity_overrides {
        document.identity_overrides.clear();
    }
    for identity in &mut document.identity_overrides {
        identity.identity_features.retain(|flag| keeps(&flag.feature.name));
    }
    document.identity_overrides.retain(|identity| !identity.identity_features.is_empty());
    Pruned { document, unserved }
}

/// Collects the names of the features that conditions read.
fn features_read(rules: &[Rule], names: &mut HashSet<String>) {
    for rule in rules {
        names.extend(rule.conditions.iter().filter_map(|condition| property::feature_read(&condition.property)));
        features_read(&rule.rules, names);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(include: &[String], exclude: &[String]) -> Result<Rules, Error> {
        Rules::compile(&Selection { include, exclude, ..Selection::default() })
    }

    #[test]
    fn globs_beyond_their_number_are_refused_by_list() {
        let globs = |count: usize| (0..count).map(|number| format!("f{number}_*")).collect::<Vec<_>>();
        assert!(rules(&globs(MOST_GLOBS), &globs(MOST_GLOBS)).is_ok_and(|rules| !rules.keeps("f99_a")));
        let error = rules(&[], &globs(MOST_GLOBS + 1)).unwrap_err();
        assert_eq!(error, Error::TooMany { list: "exclude", count: MOST_GLOBS + 1 });
        assert!(error.to_string().contains("spec.prune.features.exclude has 101 globs"), "{error}");
    }

    #[test]
    fn glob_beyond_its_length_is_refused_by_its_place() {
        let long = |length: usize| vec!["a*".to_owned(), "é".repeat(length)];
        assert!(rules(&long(LONGEST_GLOB), &[]).is_ok());
        let error = rules(&long(LONGEST_GLOB + 1), &[]).unwrap_err();
        assert_eq!(error, Error::TooLong { list: "include", index: 1, length: LONGEST_GLOB + 1 });
        assert!(!error.to_string().contains('é'), "{error}");
    }

    #[test]
    fn longest_globs_of_the_dearest_kind_are_compiled_in_bounded_memory() {
        // Alternatives in each other, classes and stars: what a glob has that a library could take much memory for.
        for (glob, name) in [
            ("{a,".repeat(64) + &"}".repeat(64), "a"),
            ("[!a-z]*".repeat(36), "CHECKOUT_BUTTON_CHECKOUT_BUTTON_CHECKOUT_BUTTON"),
            ("**/".repeat(85) + "a", "a"),
            ("{*,?}".repeat(51), "checkout"),
        ] {
            assert!(glob.len() > LONGEST_GLOB - 5, "{glob}");
            let globs = vec![glob; MOST_GLOBS];
            let mut outcome = None;
            let memory = allocation_counter::measure(|| {
                let rules = rules(&globs, &globs);
                outcome =
                    Some(rules.map(|rules| [rules.include.unwrap(), rules.exclude].map(|set| set.is_match(name))));
            });
            assert_eq!(outcome, Some(Ok([true, true])), "{}", globs[0]);
            assert!(memory.bytes_max < 32 << 20, "{} takes {} bytes", globs[0], memory.bytes_max);
        }
    }
}
