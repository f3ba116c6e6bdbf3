//! Pruning (pure): removes what the spec does not ask for. The answers of kept flags do not change.

use std::collections::HashSet;

use globset::{Glob, GlobSet, GlobSetBuilder};

use crate::compile::{
    Progress,
    document::{Document, Rule},
    property,
};

/// Rules of what to keep.
#[derive(Debug, Clone)]
pub struct Rules {
    include: GlobSet,
    exclude: GlobSet,
    includes_all: bool,
    drop_server_only: bool,
    drop_identity_overrides: bool,
}

/// Error: a glob is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
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
    /// Creates rules that keep features which match any of `include` (all, if that is empty) and none of `exclude`.
    ///
    /// # Errors
    /// A glob is invalid. The error names the first one.
    pub fn new(
        include: &[String],
        exclude: &[String],
        drop_server_only: bool,
        drop_identity_overrides: bool,
    ) -> Result<Self, Error> {
        Ok(Self {
            includes_all: include.is_empty(),
            include: globs("include", include)?,
            exclude: globs("exclude", exclude)?,
            drop_server_only,
            drop_identity_overrides,
        })
    }

    fn keeps(&self, name: &str) -> bool {
        (self.includes_all || self.include.is_match(name)) && !self.exclude.is_match(name)
    }
}

fn globs(list: &'static str, patterns: &[String]) -> Result<GlobSet, Error> {
    let error = |pattern: &str, error: &globset::Error| Error::Pattern {
        list,
        pattern: pattern.to_owned(),
        problem: error.kind().to_string(),
    };
    let mut set = GlobSetBuilder::new();
    for pattern in patterns {
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
pub(crate) fn prune_with_progress(mut document: Document, rules: &Rules, progress: Progress<'_>) -> Pruned {
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
