//! Experiments in the metadata of feature states.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

/// A running experiment, as the API reports it with the flag of an identity.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Experiment {
    /// Flagsmith's id.
    pub id: i64,
    /// Name of the experiment.
    pub name: String,
    /// True if identities that get this state take part. The dashboard's other states of the feature have false.
    pub in_experiment: bool,
}

/// The metadata of a feature state.
#[derive(Serialize, Deserialize)]
struct Metadata {
    experiment: Option<Experiment>,
}

/// Reads the experiment of a state's metadata. Metadata of another form is no experiment: Flagsmith adds members to it.
pub(super) fn of_metadata<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Box<Experiment>>, D::Error> {
    let raw = Option::<&RawValue>::deserialize(deserializer)?;
    let metadata: Option<Metadata> = raw.and_then(|raw| serde_json::from_str(raw.get()).ok());
    Ok(metadata.and_then(|metadata| metadata.experiment).map(Box::new))
}

impl Experiment {
    /// Returns the metadata of a flag, as JSON.
    #[must_use]
    pub fn metadata(&self) -> Option<String> {
        serde_json::to_string(&Metadata { experiment: Some(self.clone()) }).ok()
    }
}
