//! Translates a document into the model that is written: names become indexes, and unsupported parts become findings.

use std::collections::{HashMap, HashSet};

use remora_snapshot::model::{
    Condition, Context, Environment, Feature, IdentityOverride, Junction, Override, Rule, Segment, Test,
};
use remora_snapshot::{MAX_STEPS, backtrack, json};

use super::experiments::{self, Experiments};
use super::finding::{Finding, Findings};
use super::property::{Properties, is_identity_free};
use super::regex::{LONGEST_TEXT, Patterns};
use super::review::review;
use super::variants::{self, Identity};
use super::{Error, LONGEST_SEGMENT_NAME, Options, Progress, chains, condition, priorities};
use crate::{
    document::{self, ConditionValue, Document, FeatureState, quoted},
    prune::Pruned,
};

/// Returns the model of a pruned document, and its findings.
///
/// # Errors
/// A feature has variants without a seed or an order, or its type is too long.
pub(super) fn model(pruned: &Pruned, options: &Options<'_>) -> Result<(Environment, Vec<Finding>), Error> {
    let document = &pruned.document;
    let states = distinct(&document.feature_states, |state| state.feature.name.as_str());
    let indexes: HashMap<&str, usize> =
        states.iter().enumerate().map(|(index, (_, state))| (state.feature.name.as_str(), index)).collect();
    let ids: Vec<i64> = states.iter().map(|(_, state)| state.feature.id).collect();
    let segments: HashMap<i64, &document::Segment> =
        document.project.segments.iter().map(|segment| (segment.id, segment)).collect();
    let constants = Constants { document, states: &states, indexes: &indexes, segments };
    let constant = |path: &[&str]| constants.at(path);
    let mut builder = ModelBuilder {
        indexes: &indexes,
        properties: Properties::new(&indexes, &constant),
        patterns: Patterns::default(),
        findings: Findings::default(),
        experiments: experiments::of_defaults(&states),
        searches: 0.0,
        progress: options.progress,
    };

    let features = builder.features(pruned, &states)?;
    let segments = builder.segments(document)?;
    let environment = Environment {
        name: options.environment.to_owned(),
        client_key: document.api_key.clone(),
        server_keys: options.server_keys.iter().map(|key| (*key).to_owned()).collect(),
        identity_overrides: identity_overrides(document, &indexes, &ids)?,
        hide_disabled: document.hides_disabled_flags(),
        environment_flags: options.environment_flags,
        ofrep: options.ofrep,
        notes: Vec::new(),
        document: None,
        properties: builder.properties.into_list(),
        experiments: builder.experiments,
        features,
        segments,
    };
    for feature in chains::too_long(&environment) {
        builder.findings.add(&format!("feature {}", quoted(feature)), &chains::message());
    }
    if builder.searches > f64::from(MAX_STEPS) && builder.searches.is_finite() {
        let message = format!(
            "the patterns that are searched by backtracking (look-around, back-references, \\b) may together take {:.0} steps, more than the {MAX_STEPS} of one request, on values of {LONGEST_TEXT} characters: segments that are not decided then do not match. Use fewer of them, or patterns without these",
            builder.searches
        );
        builder.findings.add("segments", &message);
    }
    let mut findings = builder.findings.into_list();
    findings.extend(review(document, &environment)); // hints follow problems
    Ok((environment, findings))
}

/// Returns the rows of a list with distinct keys, with their positions. As in a Python dict, a later row replaces an
/// earlier one with the same key and keeps that one's place.
fn distinct<'a, T, K: std::hash::Hash + Eq>(rows: &'a [T], key: impl Fn(&'a T) -> K) -> Vec<(usize, &'a T)> {
    let mut places: HashMap<K, usize> = HashMap::with_capacity(rows.len());
    let mut kept: Vec<(usize, &'a T)> = Vec::with_capacity(rows.len());
    for (number, row) in rows.iter().enumerate() {
        match places.get(&key(row)).and_then(|place| kept.get_mut(*place)) {
            Some(place) => *place = (number, row),
            None => {
                places.insert(key(row), kept.len());
                kept.push((number, row));
            }
        }
    }
    kept
}

struct ModelBuilder<'a> {
    indexes: &'a HashMap<&'a str, usize>,
    properties: Properties<'a>,
    patterns: Patterns,
    findings: Findings,
    experiments: Experiments,
    /// Most steps of all backtracking searches of one request. Patterns without a bound have their own findings.
    searches: f64,
    progress: Progress<'a>,
}

/// Maximum length of a feature's type in bytes. The objects of all its overrides repeat the type, and Flagsmith has two
/// types.
const LONGEST_KIND: usize = 64;

impl ModelBuilder<'_> {
    fn features(&mut self, pruned: &Pruned, states: &[(usize, &FeatureState)]) -> Result<Vec<Feature>, Error> {
        let server_only: HashSet<i64> = pruned.document.project.server_key_only_feature_ids.iter().copied().collect();
        let mut ids = HashSet::with_capacity(states.len());
        states
            .iter()
            .map(|(number, state)| {
                if !ids.insert(state.feature.id) {
                    let (place, feature) = (format!("feature_states[{number}]"), state.feature.name.clone());
                    return Err(Error::Id { place, feature, id: state.feature.id });
                }
                if state.feature.kind.len() > LONGEST_KIND {
                    let feature = state.feature.name.clone();
                    return Err(Error::Kind { place: format!("feature_states[{number}]"), feature });
                }
                Ok(Feature {
                    id: state.feature.id,
                    name: state.feature.name.clone(),
                    kind: state.feature.kind.clone(),
                    served: !pruned.unserved.contains(&state.feature.name),
                    server_only: server_only.contains(&state.feature.id),
                    default: context(state, &format!("feature_states[{number}]"))?,
                })
            })
            .collect()
    }

    /// Returns the segments that can change an answer: those that override a feature, and those that read a flag
    /// (reading a flag can close a cycle, which the reason of an answer reports).
    fn segments(&mut self, document: &Document) -> Result<Vec<Segment>, Error> {
        let ranks = priorities::ranks(document);
        let mut segments = Vec::new();
        for (number, segment) in distinct(&document.project.segments, |segment| segment.id) {
            self.progress.at_segment(&segment.name, segment.id);
            let reads_flag =
                any_condition(&segment.rules, &|condition| super::property::flag_read(&condition.property).is_some());
            if segment.feature_states.is_empty() && !reads_flag {
                continue;
            }
            let characters = segment.name.chars().count();
            if characters > LONGEST_SEGMENT_NAME {
                let (place, segment) = (format!("project.segments[{number}]"), segment.name.clone());
                return Err(Error::SegmentName { place, segment, characters });
            }
            let subject = format!("segment {} ({})", quoted(&segment.name), segment.id);
            let rules = self.rules(&segment.rules, &subject);
            experiments::add(&mut self.experiments, segments.len(), segment, self.indexes);
            segments.push(Segment {
                id: segment.id.to_string(),
                name: segment.name.clone(),
                // An unknown rule type makes the whole segment false, because Flagsmith's engine stops at such a rule.
                rules: rules.unwrap_or_default(),
                overrides: self.overrides(segment, number, &ranks)?,
                identity_free: !any_condition(&segment.rules, &|condition| !is_identity_free(&condition.property)),
            });
        }
        Ok(segments)
    }

    fn overrides(
        &self,
        segment: &document::Segment,
        number: usize,
        ranks: &HashMap<(usize, usize), f64>,
    ) -> Result<Vec<Override>, Error> {
        let mut overrides = Vec::with_capacity(segment.feature_states.len());
        for (row, state) in segment.feature_states.iter().enumerate() {
            if let Some(feature) = self.indexes.get(state.feature.name.as_str()) {
                overrides.push(Override {
                    feature: *feature,
                    priority: ranks.get(&(number, row)).copied(),
                    context: context(state, &format!("project.segments[{number}].feature_states[{row}]"))?,
                });
            }
        }
        Ok(overrides)
    }

    fn rules(&mut self, rules: &[document::Rule], subject: &str) -> Option<Vec<Rule>> {
        let mut all = Some(Vec::with_capacity(rules.len()));
        for rule in rules {
            let junction = match rule.junction.as_str() {
                "ALL" => Some(Junction::All),
                "ANY" => Some(Junction::Any),
                "NONE" => Some(Junction::None),
                _ => {
                    self.findings.add(
                        subject,
                        "a rule's type is unknown; types are ALL, ANY and NONE. The segment does not match",
                    );
                    None
                }
            };
            let conditions = rule.conditions.iter().map(|condition| self.condition(condition, subject)).collect();
            let rules = self.rules(&rule.rules, subject);
            all = match (all, junction, rules) {
                (Some(mut all), Some(junction), Some(rules)) => {
                    all.push(Rule { junction, conditions, rules });
                    Some(all)
                }
                _ => None,
            };
        }
        all
    }

    fn condition(&mut self, condition: &document::Condition, subject: &str) -> Condition {
        let test = condition::test(condition, &mut self.patterns).unwrap_or_else(|problem| {
            let property = quoted(&condition.property);
            let message = format!("{} on {property}: {problem}. The condition is false", operator_of(condition));
            self.findings.add(subject, &message);
            Test::Constant(false)
        });
        if matches!(test, Test::Matches(_)) {
            self.search(condition, subject);
        }
        let property = if condition.operator == "PERCENTAGE_SPLIT" && condition.property.is_empty() {
            self.properties.identity_key()
        } else {
            let (property, problem) = self.properties.named(&condition.property);
            if let Some(problem) = problem {
                self.findings.add(subject, &problem);
            }
            if condition.property.starts_with(COHORT) {
                self.findings.add(subject, &no_members(&condition.property));
            }
            property
        };
        Condition { property, test }
    }
}

/// Start of the names of the traits that Flagsmith gives to the members of cohorts. It never hands these traits out.
const COHORT: &str = "flagsmith_cohort_";

fn no_members(property: &str) -> String {
    format!(
        "it reads the cohort {}, whose members only Flagsmith knows: nobody is a member here. Select the identities by a trait that \
         the application sends instead, or let it send this trait",
        quoted(property)
    )
}

impl ModelBuilder<'_> {
    /// Adds the steps of a search to those of a request. Reports a search that can exceed its limits.
    fn search(&mut self, condition: &document::Condition, subject: &str) {
        let pattern = match &condition.value {
            ConditionValue::Text(text) => text.as_str(),
            _ => return,
        };
        let steps = self.patterns.most_steps(pattern);
        if steps.is_finite() {
            self.searches += steps;
            return;
        }
        let property = quoted(&condition.property);
        let message = format!(
            "REGEX on {property}: a search in a value of {LONGEST_TEXT} characters may take more than the {} steps of one search; the segment then does not match. Avoid repetitions in each other, and repetitions next to each other that match the same characters",
            backtrack::MAX_STEPS
        );
        self.findings.add(subject, &message);
    }
}

fn any_condition(rules: &[document::Rule], holds: &dyn Fn(&document::Condition) -> bool) -> bool {
    rules.iter().any(|rule| rule.conditions.iter().any(holds) || any_condition(&rule.rules, holds))
}

/// Returns the operator's name for messages, or "a condition" if Flagsmith has no such operator: the name is then any text
/// of the document.
fn operator_of(condition: &document::Condition) -> &str {
    if condition::is_operator(&condition.operator) { &condition.operator } else { "a condition" }
}

fn context(state: &FeatureState, place: &str) -> Result<Context, Error> {
    let variants = &state.multivariate_feature_state_values;
    let split = if variants.is_empty() {
        None
    } else {
        Some(variants::split(state.seed(), variants, &state.feature.name, place)?)
    };
    Ok(Context { enabled: state.enabled, value: state.feature_state_value.token().to_owned(), split })
}

/// Returns the overrides of identities, with the variants that their percentages give.
fn identity_overrides(
    document: &Document,
    indexes: &HashMap<&str, usize>,
    ids: &[i64],
) -> Result<Vec<IdentityOverride>, Error> {
    let mut overrides = Vec::with_capacity(document.identity_overrides.len());
    for identity in &document.identity_overrides {
        let hashed = Identity { client_key: &document.api_key, identifier: &identity.identifier };
        let mut flags = Vec::with_capacity(identity.identity_features.len());
        for flag in &identity.identity_features {
            if let Some(feature) = indexes.get(&*flag.feature.name).and_then(|index| ids.get(*index)) {
                flags.push(variants::identity_flag(*feature, flag, hashed)?);
            }
        }
        if !flags.is_empty() {
            overrides.push(IdentityOverride { identifier: identity.identifier.clone(), flags });
        }
    }
    Ok(overrides)
}

/// Parts of the evaluation context that no request changes.
struct Constants<'a> {
    document: &'a Document,
    states: &'a [(usize, &'a FeatureState)],
    indexes: &'a HashMap<&'a str, usize>,
    /// Segments by id. As in a Python dict, the last of several with one id counts.
    segments: HashMap<i64, &'a document::Segment>,
}

impl Constants<'_> {
    /// Returns the scalar at a path as a JSON token.
    fn at(&self, path: &[&str]) -> Option<String> {
        let quoted = |text: &str| {
            let mut token = String::new();
            json::write_string(text, &mut token);
            token
        };
        match path {
            ["environment", "key"] => Some(quoted(&self.document.api_key)),
            ["environment", "name"] => self.document.name.as_deref().map(quoted),
            ["features", name, member @ ..] => {
                let (_, state) = self.states.get(*self.indexes.get(name)?)?;
                match member {
                    ["key"] => state.seed().as_deref().map(quoted),
                    ["name"] => Some(quoted(name)),
                    ["enabled"] => Some(state.enabled.to_string()),
                    ["value"] => Some(state.feature_state_value.token().to_owned()),
                    ["priority"] => Some(state.feature_segment.as_ref()?.priority.as_ref()?.text.clone()),
                    ["metadata", "id"] => Some(state.feature.id.to_string()),
                    _ => None,
                }
            }
            ["segments", key, member @ ..] => {
                let id: i64 = key.parse().ok()?;
                let segment = self.segments.get(&id).filter(|_| id.to_string() == *key)?;
                match member {
                    ["key"] => Some(quoted(key)),
                    ["name"] => Some(quoted(&segment.name)),
                    ["metadata", "id"] => Some(segment.id.to_string()),
                    ["metadata", "source"] => Some(quoted("api")),
                    _ => None,
                }
            }
            _ => None,
        }
    }
}
