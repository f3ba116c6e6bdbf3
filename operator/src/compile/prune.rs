//! Pruning (pure): leaving out what nobody asked for. The answer of a flag that is kept does not change.

use std::collections::HashSet;

use globset::{Glob, GlobSet, GlobSetBuilder};

use crate::compile::{
    Progress,
    document::{Document, Rule},
    property,
};

/// What to keep.
#[derive(Debug, Clone)]
pub struct Rules {
    include: GlobSet,
    exclude: GlobSet,
    includes_all: bool,
    drop_server_only: bool,
    drop_identity_overrides: bool,
}

/// A glob that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// With its place in the specification.
    #[error(
        "spec.prune.features.{list}: {pattern:?} is not a glob: {problem}; write names with *, ? or [abc], as checkout_*"
    )]
    Pattern {
        /// `include` or `exclude`.
        list: &'static str,
        /// The glob.
        pattern: String,
        /// What is wrong with it.
        problem: String,
    },
}

impl Rules {
    /// Keeps features that match any of `include` (all, if that is empty) and none of `exclude`.
    ///
    /// # Errors
    /// The first glob that cannot be read.
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

/// A document with what is to be served.
#[derive(Debug, Clone)]
pub struct Pruned {
    /// What is left.
    pub document: Document,
    /// Names of features that are not served, and are kept because conditions of others read them.
    pub unserved: HashSet<String>,
}

impl Pruned {
    /// The names of the features that are served.
    pub fn served(&self) -> impl Iterator<Item = &str> {
        let names = self.document.feature_states.iter().map(|state| state.feature.name.as_str());
        names.filter(|name| !self.unserved.contains(*name))
    }
}

/// Leaves out features, what overrides them, and identity overrides if they are not wanted.
#[must_use]
pub fn prune(document: Document, rules: &Rules) -> Pruned {
    prune_telling(document, rules, Progress::default())
}

/// Prunes, and tells `progress` which segment it is at.
pub(crate) fn prune_telling(mut document: Document, rules: &Rules, progress: Progress<'_>) -> Pruned {
    document.settle_identities();
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

/// The names of the features that conditions read.
fn features_read(rules: &[Rule], names: &mut HashSet<String>) {
    for rule in rules {
        names.extend(rule.conditions.iter().filter_map(|condition| property::feature_read(&condition.property)));
        features_read(&rule.rules, names);
    }
}
