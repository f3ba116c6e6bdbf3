//! Flag overrides, for people who test: states and values that a pod sets for all of its requests, or a request for itself.

use crate::budget::StepBudget;
use crate::format::view::View;

/// Replacement for the result of a flag.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct FlagOverride {
    /// Name of the flag.
    pub flag: String,
    /// State. `None` leaves the state that the flag has by evaluation.
    pub enabled: Option<bool>,
    /// Value as JSON: a string, an integer, a boolean or null. `None` leaves the value that the flag has by evaluation.
    pub value: Option<String>,
    /// Author of the override.
    pub by: OverriddenBy,
}

/// Author of a flag override.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OverriddenBy {
    /// The pod, for all requests.
    Pod,
    /// A request, for itself.
    Request,
}

impl OverriddenBy {
    /// Returns the value of OFREP's metadata.
    pub(crate) fn word(self) -> &'static str {
        match self {
            OverriddenBy::Pod => "pod",
            OverriddenBy::Request => "request",
        }
    }
}

/// The overrides of flags that an environment has, by the number of the feature. They are few.
#[derive(Debug, Clone)]
pub(crate) struct FlagOverrides(Vec<(u32, FlagOverride)>);

impl FlagOverrides {
    /// Finds the features. Leaves out flags that the environment does not have.
    pub(crate) fn of(view: &View<'_>, all: &[FlagOverride]) -> Self {
        let number = |own: &FlagOverride| view.feature_named(own.flag.as_bytes(), &StepBudget::default());
        Self(all.iter().filter_map(|own| Some((number(own)?, own.clone()))).collect())
    }

    /// Returns the override of the feature with this number.
    pub(crate) fn get(&self, feature: u32) -> Option<&FlagOverride> {
        self.0.iter().find(|(number, _)| *number == feature).map(|(_, own)| own)
    }

    /// Returns the names of the overridden flags.
    pub(crate) fn flags(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(_, own)| own.flag.as_str())
    }

    /// True if the environment has no flag that is overridden.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
