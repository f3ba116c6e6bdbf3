//! Guard (pure): checks whether a document may replace the published one.
//!
//! The guard holds back a document of another environment, one that lost too much, and one that is older than the
//! published one. A source that fails without an error (a stale cache, an exchanged key, a cut-off answer) looks just
//! like one that was changed. The published document stays until the source returns an acceptable one, or a person
//! approves the revision. Naming another place in the source is an approval: documents of different places are not
//! compared.

use std::fmt;

use jiff::Timestamp;
use remora_compile::{about::DocumentStats, digest::Digest};
use serde::{Deserialize, Deserializer, Serialize};

use crate::api::{PlannedSource, Reason, Source};

/// Minimum number of lost features or segments for a violation. A smaller loss is no violation, whatever its share,
/// unless the document has no features.
const FEW: usize = 5;
/// Minimum number of lost identities with overrides for a violation. It is higher, because scripts create and delete
/// them.
const FEW_OVERRIDES: usize = 100;

/// Summary of a document for comparison with later ones, also by another process: it is stored with the snapshot that
/// was compiled from the document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GuardBaseline {
    /// Digest of the source's location.
    source: String,
    /// Digest of the client-side key, which identifies the environment.
    environment: String,
    /// Time of the last change. Set if the document has one and the source is a server, which can return an old
    /// document.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "valid_time")]
    updated_at: Option<Timestamp>,
    features: usize,
    segments: usize,
    overrides: usize,
}

/// Reason why a document is held back.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// The document has another client-side key.
    #[error(
        "the document belongs to another environment than the published one: check the key or the object that spec.source names"
    )]
    OtherEnvironment,
    /// The document is older than the published one.
    #[error(
        "the document was changed at {found}, before the published one, which was changed at {published}: a cache or a replica of the source lags behind, or the source was set back"
    )]
    OlderDocument {
        /// Time of the last change in the fetched document.
        found: String,
        /// Time of the last change in the published document.
        published: String,
    },
    /// The document lost more than `spec.guard.maxShrinkPercent` allows.
    #[error("the document has {0}, which spec.guard.maxShrinkPercent does not allow")]
    SuspiciousShrink(Losses),
}

/// Losses of a document, by kind of object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Losses(Vec<Loss>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Loss {
    /// Kind of the objects, in the plural.
    what: &'static str,
    /// Published number.
    before: usize,
    /// New number.
    after: usize,
}

impl fmt::Display for Losses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, Loss { what, before, after }) in self.0.iter().enumerate() {
            let comma = if place == 0 { "" } else { ", " };
            write!(f, "{comma}{after} {what} where {before} are published")?;
        }
        Ok(())
    }
}

impl Violation {
    /// Returns the reason in conditions and Events.
    pub fn reason(&self) -> Reason {
        match self {
            Self::OtherEnvironment => Reason::OtherEnvironment,
            Self::OlderDocument { .. } => Reason::OlderDocument,
            Self::SuspiciousShrink(_) => Reason::SuspiciousShrink,
        }
    }
}

impl GuardBaseline {
    /// Creates the summary of a document, which `about` summarizes, from this source.
    pub fn of(about: &DocumentStats, source: &Source) -> Self {
        // An object in the cluster has no cache before it, and an older version in it is intended by its owner.
        let can_lag = source.flagsmith.is_some();
        let updated_at = about.updated_at.as_deref().filter(|_| can_lag).and_then(|at| at.parse::<Timestamp>().ok());
        Self {
            source: short(&place(source)),
            environment: short(&about.client_key),
            updated_at,
            features: about.features,
            segments: about.segments,
            overrides: about.overrides,
        }
    }

    /// Returns true if both documents came from the same source.
    pub fn has_source_of(&self, other: &Self) -> bool {
        self.source == other.source
    }

    /// Returns the reason why this document may not replace `published`, if any. A loss of up to `max_shrink_percent`
    /// is allowed.
    pub fn violation(&self, published: &Self, max_shrink_percent: usize) -> Option<Violation> {
        if !self.has_source_of(published) {
            return None;
        }
        if self.environment != published.environment {
            return Some(Violation::OtherEnvironment);
        }
        if let (Some(found), Some(before)) = (self.updated_at, published.updated_at)
            && found < before
        {
            return Some(Violation::OlderDocument { found: found.to_string(), published: before.to_string() });
        }
        let losses = self.losses(published, max_shrink_percent);
        (!losses.is_empty()).then_some(Violation::SuspiciousShrink(Losses(losses)))
    }

    fn losses(&self, published: &Self, max_shrink_percent: usize) -> Vec<Loss> {
        let emptied = max_shrink_percent < 100 && published.features > 0 && self.features == 0;
        let loss = |what, before: usize, after: usize, few| {
            let lost = before.saturating_sub(after);
            let is_large = lost >= few && lost.saturating_mul(100) > before.saturating_mul(max_shrink_percent);
            is_large.then_some(Loss { what, before, after })
        };
        let losses = [
            loss("features", published.features, self.features, if emptied { 1 } else { FEW }),
            loss("segments", published.segments, self.segments, FEW),
            loss("identities with overrides", published.overrides, self.overrides, FEW_OVERRIDES),
        ];
        losses.into_iter().flatten().collect()
    }
}

/// Reads a time. Another text counts as no time, because a person may have edited the record.
fn valid_time<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Timestamp>, D::Error> {
    let text: Option<String> = Option::deserialize(deserializer)?;
    Ok(text.and_then(|text| text.parse().ok()))
}

/// Returns the location that a source reads from, without options of how it reads.
fn place(source: &Source) -> String {
    match source.planned() {
        Some(PlannedSource::Flagsmith(flagsmith)) => {
            let key = &flagsmith.environment_key_secret_ref;
            format!("flagsmith {} {} {}", flagsmith.api_url.trim_end_matches('/'), key.name, key.key)
        }
        Some(PlannedSource::ConfigMap(reference)) => format!("configmap {} {}", reference.name, reference.key),
        Some(PlannedSource::Secret(reference)) => format!("secret {} {}", reference.name, reference.key),
        None => String::new(),
    }
}

fn short(text: &str) -> String {
    Digest::of(text.as_bytes()).short().to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn source(value: serde_json::Value) -> Source {
        serde_json::from_value(value).unwrap()
    }

    fn server() -> Source {
        source(json!({"flagsmith": {"apiUrl": "https://a/api/v1/", "environmentKeySecretRef": {"name": "k"}}}))
    }

    fn summary(key: &str, at: &str, counts: [usize; 3]) -> GuardBaseline {
        let [features, segments, overrides] = counts;
        let (client_key, updated_at) = (key.to_owned(), Some(at.to_owned()));
        GuardBaseline::of(&DocumentStats { client_key, updated_at, features, segments, overrides }, &server())
    }

    const AT: &str = "2026-11-20T00:00:00.500000+00:00";

    fn shrunk(before: [usize; 3], after: [usize; 3], percent: usize) -> Option<String> {
        let violation = summary("k", AT, after).violation(&summary("k", AT, before), percent)?;
        assert_eq!(violation.reason(), Reason::SuspiciousShrink);
        Some(violation.to_string())
    }

    #[test]
    fn guard_holds_back_document_that_lost_more_than_limit() {
        let said = shrunk([100, 20, 1000], [49, 20, 10], 50).unwrap();
        assert!(said.contains("49 features where 100 are published"), "{said}");
        assert!(said.contains("10 identities with overrides where 1000"), "{said}");
        assert!(!said.contains("segments"), "{said}");
        assert!(shrunk([100, 20, 1000], [50, 10, 500], 50).is_none());
        assert!(shrunk([100, 20, 1000], [99, 20, 1000], 0).is_none(), "one of a hundred, though nothing may be lost");
        assert!(shrunk([100, 20, 1000], [95, 20, 1000], 0).is_some());
    }

    #[test]
    fn guard_ignores_losses_of_small_numbers() {
        assert!(shrunk([6, 4, 99], [2, 0, 0], 50).is_none());
        assert!(shrunk([2, 0, 0], [0, 0, 0], 50).is_some(), "but an environment with nothing left is");
    }

    #[test]
    fn limit_of_hundred_percent_allows_every_loss() {
        assert!(shrunk([100, 20, 1000], [0, 0, 0], 100).is_none());
    }

    #[test]
    fn guard_accepts_growing_document() {
        assert!(shrunk([1, 0, 0], [1000, 1000, 1000], 0).is_none());
    }

    #[test]
    fn guard_holds_back_document_of_other_environment() {
        let violation = summary("other", AT, [9; 3]).violation(&summary("k", AT, [9; 3]), 100);
        assert_eq!(violation, Some(Violation::OtherEnvironment));
        let written = serde_json::to_string(&summary("canary", AT, [1; 3])).unwrap();
        assert!(!written.contains("canary"), "{written}");
    }

    #[test]
    fn guard_holds_back_older_document() {
        let older = "2026-11-20T01:00:00.400000+01:00"; // 0.1 s before AT
        let violation = summary("k", older, [9; 3]).violation(&summary("k", AT, [9; 3]), 100).unwrap();
        assert_eq!(violation.reason(), Reason::OlderDocument);
        for not_older in [AT, "2026-11-20T00:00:00.500001+00:00", "yesterday"] {
            assert_eq!(summary("k", not_older, [9; 3]).violation(&summary("k", AT, [9; 3]), 100), None, "{not_older}");
        }
    }

    #[test]
    fn stored_baseline_keeps_its_text() {
        let text = r#"{"source":"a","environment":"b","updatedAt":"2026-11-20T00:00:00.5Z","features":1,"segments":2,"overrides":3}"#;
        let baseline: GuardBaseline = serde_json::from_str(text).unwrap();
        assert_eq!(baseline.updated_at, AT.parse().ok());
        assert_eq!(serde_json::to_string(&baseline).unwrap(), text);
        let edited: GuardBaseline = serde_json::from_str(&text.replace("2026", "in 2026")).unwrap();
        assert_eq!(edited, GuardBaseline { updated_at: None, ..baseline });
    }

    #[test]
    fn guard_accepts_document_of_changed_source() {
        let elsewhere =
            GuardBaseline { source: "other".to_owned(), ..summary("other", "2020-01-01T00:00:00Z", [0; 3]) };
        assert_eq!(elsewhere.violation(&summary("k", AT, [100; 3]), 0), None);
        // Options of how a source reads are not part of its location.
        let mut same = server();
        if let Some(flagsmith) = &mut same.flagsmith {
            flagsmith.api_url = "https://a/api/v1".to_owned();
        }
        assert_eq!(place(&same), place(&server()));
    }

    #[test]
    fn guard_ignores_age_of_documents_in_cluster() {
        let about = DocumentStats { updated_at: Some(AT.to_owned()), ..DocumentStats::default() };
        let flags = source(json!({"document": {"configMapKeyRef": {"name": "flags", "key": "d"}}}));
        assert_eq!(GuardBaseline::of(&about, &flags).updated_at, None);
        assert!(GuardBaseline::of(&about, &server()).updated_at.is_some());
    }
}
