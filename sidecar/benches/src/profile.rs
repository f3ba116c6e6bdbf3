//! The environments that are measured.
//!
//! `official` has the shape of the benchmark that Flagsmith publishes: 50 features, 15 segments of 15 conditions, every
//! feature overridden by every segment. `medium` is an environment of a company: 200 features, 50 segments that override
//! 40 features each, 8,700 identities with flags of their own, 11 MB as Flagsmith emits it.

/// The size of an environment. The same profile is the same document, byte for byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Profile {
    /// What it is called.
    pub name: &'static str,
    /// How many features.
    pub features: usize,
    /// How many of them are split among variants by the identity's hash: the last ones.
    pub split: usize,
    /// How many segments.
    pub segments: usize,
    /// How many of them hold for the identity that asks: every `segments / matching`-th.
    pub matching: usize,
    /// How many conditions a segment has.
    pub conditions: usize,
    /// How many features a segment overrides.
    pub targets: usize,
    /// How many features further on the next segment begins to override.
    pub spread: usize,
    /// How many identities have flags of their own.
    pub identities: usize,
    /// How many flags each of them has.
    pub flags_each: usize,
    /// All of them have the same one.
    pub list: bool,
    /// The segments are made for a [population](crate::population), and not for one person.
    pub population: bool,
}

const OFFICIAL: Profile = Profile {
    name: "official",
    features: 50,
    split: 0,
    segments: 15,
    matching: 3,
    conditions: 15,
    targets: 50,
    spread: 0,
    identities: 0,
    flags_each: 1,
    list: false,
    population: false,
};

/// Flagsmith's published benchmark, with identity overrides.
#[must_use]
pub const fn official(name: &'static str, identities: usize) -> Profile {
    Profile { name, identities, ..OFFICIAL }
}

/// The same without segments.
pub const PLAIN: Profile = Profile { name: "plain", segments: 0, matching: 0, targets: 0, ..OFFICIAL };

/// The official profile with one flag that was made a list of 52,000 identities.
pub const LIST: Profile = Profile { name: "list", identities: 52_000, list: true, ..OFFICIAL };

/// The official profile with twenty times the features, of which segments override the same ones.
pub const WIDE: Profile = Profile { name: "wide", features: 1_000, ..OFFICIAL };

/// A company's environment.
pub const MEDIUM: Profile = Profile {
    name: "medium",
    features: 200,
    split: 4,
    segments: 50,
    matching: 5,
    conditions: 10,
    targets: 40,
    spread: 7,
    identities: 8_700,
    flags_each: 3,
    list: false,
    population: false,
};

/// The official profile for a population.
pub const POPULATED: Profile = Profile { name: "official-population", population: true, ..OFFICIAL };

/// The official profile for a population, with identity overrides.
pub const POPULATED_OVERRIDES: Profile = Profile { name: "official-population+8700", identities: 8_700, ..POPULATED };

/// A company's environment for a population.
pub const POPULATED_MEDIUM: Profile = Profile { name: "medium-population", population: true, ..MEDIUM };

/// What all of them are called.
pub const ENVIRONMENT: &str = "bench";

/// The client key of all of them.
pub const CLIENT_KEY: &str = "Rm8hZk2cQx4vT6yB9nL3wE";

impl Profile {
    /// The name of a feature.
    #[must_use]
    pub fn feature(number: usize) -> String {
        format!("feature_{number:04}")
    }

    /// The name of an identity. Those below [`Profile::identities`] have flags of their own.
    #[must_use]
    pub fn identifier(number: usize) -> String {
        format!("user-{number:07}@customers.example")
    }

    /// Does this segment hold for whoever sends [`crate::request::TRAITS`]?
    #[must_use]
    pub fn matches(&self, segment: usize) -> bool {
        self.matching > 0 && segment.is_multiple_of(self.segments / self.matching)
    }
}
