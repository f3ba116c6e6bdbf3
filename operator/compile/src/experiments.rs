//! Finds the features on which experiments run.
//!
//! Newer servers name the experiment in the metadata of the feature's states. Older ones only have the segment of the
//! experiment's rollout, whose name Flagsmith gives.

use std::collections::{BTreeMap, HashMap};

use remora_snapshot::model::Experiment;

use super::document::{FeatureState, Segment};

/// Experiments by the index of their feature.
pub(super) type Experiments = BTreeMap<usize, Experiment>;

/// Returns the experiments that the defaults of features name.
pub(super) fn of_defaults(states: &[(usize, &FeatureState)]) -> Experiments {
    let named = states.iter().enumerate().filter_map(|(feature, (_, state))| {
        let default = state.experiment.as_ref()?.metadata();
        Some((feature, Experiment { default, ..Experiment::default() }))
    });
    named.collect()
}

/// Adds the experiments that the overrides of a segment name. `number` is the segment's index in the model, and
/// `indexes` are the indexes of the features that the model has.
pub(super) fn add(experiments: &mut Experiments, number: usize, segment: &Segment, indexes: &HashMap<&str, usize>) {
    let known = segment.feature_states.iter().filter_map(|state| Some((*indexes.get(&*state.feature.name)?, state)));
    for (position, (feature, state)) in known.enumerate() {
        match &state.experiment {
            Some(experiment) => {
                let metadata = experiment.metadata().map(|metadata| ((number, position), metadata));
                experiments.entry(feature).or_default().overrides.extend(metadata);
            }
            None if is_rollout(&segment.name) => {
                experiments.entry(feature).or_default();
            }
            None => {}
        }
    }
}

/// True for the name that Flagsmith gives to the segment of an experiment's rollout: `experiment-1-rollout`.
fn is_rollout(name: &str) -> bool {
    let id = name.strip_prefix("experiment-").and_then(|rest| rest.strip_suffix("-rollout"));
    id.is_some_and(|id| !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_digit()))
}
