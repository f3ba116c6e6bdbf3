//! The environments that are measured.
//!
//! `official` has the shape of Flagsmith's published benchmark: 50 features, and 15 segments of 15 conditions, each of
//! which overrides every feature. `medium` is the environment of a company: 200 features, 50 segments that override 40
//! features each, 8,700 identities with overrides, and a document of 11 MB. `large` has as many features and segments as
//! Flagsmith allows by default, and more overrides. `legal-maximum` has ten times Flagsmith's default limits, which a
//! self-hosted server can raise: 10,000 features, 5,000 segments, and 20,000 segment overrides.

/// The size of an environment. The same profile always yields the same document, byte for byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Profile {
    /// Name of the profile.
    pub name: &'static str,
    /// Number of features.
    pub features: usize,
    /// Number of features with a percentage split among variants: the last ones.
    pub split: usize,
    /// Number of segments.
    pub segments: usize,
    /// Number of segments that match the requesting identity: every `segments / matching`-th.
    pub matching: usize,
    /// Number of conditions of a segment.
    pub conditions: usize,
    /// True if segments have one condition, two, and so on up to that number in turn.
    pub mixed: bool,
    /// Number of features that a segment overrides.
    pub targets: usize,
    /// Distance in features between the first overrides of two successive segments.
    pub spread: usize,
    /// Number of identities with overrides.
    pub identities: usize,
    /// Number of flags that each of them overrides.
    pub flags_each: usize,
    /// True if all of them override the same flag.
    pub list: bool,
    /// True if the segments are made for a [population](crate::population), and not for one person.
    pub population: bool,
}

const OFFICIAL: Profile = Profile {
    name: "official",
    features: 50,
    split: 0,
    segments: 15,
    matching: 3,
    conditions: 15,
    mixed: false,
    targets: 50,
    spread: 0,
    identities: 0,
    flags_each: 1,
    list: false,
    population: false,
};

/// Profile of Flagsmith's published benchmark, with identity overrides.
#[must_use]
pub const fn official(name: &'static str, identities: usize) -> Profile {
    Profile { name, identities, ..OFFICIAL }
}

/// The official profile without segments.
pub const PLAIN: Profile = Profile { name: "plain", segments: 0, matching: 0, targets: 0, ..OFFICIAL };

/// The official profile with one flag that is overridden for 52,000 identities, as if it were a list of them.
pub const LIST: Profile = Profile { name: "list", identities: 52_000, list: true, ..OFFICIAL };

/// The official profile with twenty times the features. Segments override the same ones as before.
pub const WIDE: Profile = Profile { name: "wide", features: 1_000, ..OFFICIAL };

/// Profile of a company's environment.
pub const MEDIUM: Profile = Profile {
    name: "medium",
    features: 200,
    split: 4,
    segments: 50,
    matching: 5,
    conditions: 10,
    mixed: false,
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

/// Profile of a company's environment for a population.
pub const POPULATED_MEDIUM: Profile = Profile { name: "medium-population", population: true, ..MEDIUM };

/// Profile of a large environment, for a population.
pub const LARGE: Profile = Profile {
    name: "large",
    features: 1_000,
    split: 20,
    segments: 500,
    matching: 0,
    conditions: 10,
    mixed: true,
    targets: 30,
    spread: 7,
    identities: 8_700,
    flags_each: 3,
    list: false,
    population: true,
};

/// Profile of ten times Flagsmith's default limits, for a population.
pub const LEGAL_MAXIMUM: Profile =
    Profile { name: "legal-maximum", features: 10_000, split: 200, segments: 5_000, targets: 4, ..LARGE };

/// Name of all environments.
pub const ENVIRONMENT: &str = "bench";

/// Client key of all environments.
pub const CLIENT_KEY: &str = "Rm8hZk2cQx4vT6yB9nL3wE";

impl Profile {
    /// Returns the name of a feature.
    #[must_use]
    pub fn feature(number: usize) -> String {
        format!("feature_{number:04}")
    }

    /// Returns the identifier of an identity. Those below [`Profile::identities`] have overrides.
    #[must_use]
    pub fn identifier(number: usize) -> String {
        format!("user-{number:07}@customers.example")
    }

    /// Returns the number of conditions of a segment.
    #[must_use]
    pub fn conditions_of(&self, segment: usize) -> usize {
        if self.mixed { 1 + segment % self.conditions } else { self.conditions }
    }

    /// True if this segment matches an identity with [`crate::request::TRAITS`].
    #[must_use]
    pub fn matches(&self, segment: usize) -> bool {
        self.matching > 0 && segment.is_multiple_of(self.segments / self.matching)
    }
}
