//! A document as the stub holds it: what it changes is parsed, the rest stays as it came.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::ops::Range;

use anyhow::Context as _;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use super::members::Members;

/// A change of one feature's state in the environment. A member that is absent stays as it is.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct FlagChange {
    /// On or off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// The value; `null` is a value too.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub value: Option<Value>,
}

fn present<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

/// An environment document.
#[derive(Clone, Debug)]
pub struct Document {
    members: Members,
    overrides: Vec<Members>,
    id: i64,
    client_key: String,
    updated_at: Timestamp,
}

impl Document {
    /// Takes a document as Flagsmith emits it. One without `updated_at` is as old as `now`.
    ///
    /// # Errors
    ///
    /// When it is no JSON object or lacks `api_key`.
    pub fn parse(text: &str, now: Timestamp) -> anyhow::Result<Self> {
        let mut members: Members = serde_json::from_str(text).context("the document is no JSON object")?;
        let client_key = members.get("api_key").context("`api_key`")?.context("the document has no `api_key`")?;
        let overrides = members.get("identity_overrides").context("`identity_overrides`")?.unwrap_or_default();
        let id = members.get("id").context("`id`")?.unwrap_or(1);
        let updated_at = match members.get::<String>("updated_at").context("`updated_at`")? {
            Some(text) => text.parse().with_context(|| format!("`updated_at` is no instant: {text}"))?,
            None => {
                members.set("updated_at", &emitted(now))?;
                now
            }
        };
        Ok(Self { members, overrides, id, client_key, updated_at })
    }

    /// The environment's client-side key.
    #[must_use]
    pub fn client_key(&self) -> &str {
        &self.client_key
    }

    /// When it changed last.
    #[must_use]
    pub fn updated_at(&self) -> Timestamp {
        self.updated_at
    }

    /// How many identity overrides it has: what pages split.
    #[must_use]
    pub fn overrides(&self) -> usize {
        self.overrides.len()
    }

    /// The environment's number, which cursors bear.
    #[must_use]
    pub fn id(&self) -> i64 {
        self.id
    }

    /// Changes a feature's state in the environment and, with it, `updated_at`.
    ///
    /// # Errors
    ///
    /// When no feature has that name, or the document's shape is not Flagsmith's.
    pub fn change_flag(&mut self, name: &str, change: &FlagChange, now: Timestamp) -> anyhow::Result<()> {
        let mut states: Vec<Members> =
            self.members.get("feature_states")?.context("the document has no `feature_states`")?;
        let mut names = Vec::new();
        for state in &mut states {
            let feature: Members = state.get("feature")?.context("a feature state without `feature`")?;
            let own: String = feature.get("name")?.context("a feature without `name`")?;
            if own == name {
                if let Some(enabled) = change.enabled {
                    state.set("enabled", &enabled)?;
                }
                if let Some(value) = &change.value {
                    state.set("feature_state_value", value)?;
                }
                self.members.set("feature_states", &states)?;
                return self.touch(now);
            }
            names.push(own);
        }
        anyhow::bail!("no feature `{name}` in the document; it has: {}", names.join(", "))
    }

    /// Makes it look changed at `now`.
    pub(super) fn touch(&mut self, now: Timestamp) -> anyhow::Result<()> {
        self.updated_at = now;
        Ok(self.members.set("updated_at", &emitted(now))?)
    }

    /// The whole document with the identity overrides of `range`, each with a fresh `identity_uuid`, as the API does.
    pub(super) fn page(&self, range: Range<usize>) -> anyhow::Result<String> {
        let mut page = self.members.clone();
        let mut overrides: Vec<Members> = self.overrides.get(range).unwrap_or_default().to_vec();
        for identity in &mut overrides {
            if identity.get::<&RawValue>("identity_uuid")?.is_some() {
                identity.set("identity_uuid", &random_uuid())?;
            }
        }
        page.set("identity_overrides", &overrides)?;
        Ok(serde_json::to_string(&page)?)
    }
}

/// An instant as Django writes it.
fn emitted(instant: Timestamp) -> String {
    instant.strftime("%Y-%m-%dT%H:%M:%S%.6f+00:00").to_string()
}

/// A version 4 UUID. The standard library's hash keys are random, and nothing here needs more than that.
fn random_uuid() -> String {
    let half = || RandomState::new().build_hasher().finish();
    let (a, b) = (half(), half());
    format!(
        "{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}",
        a >> 32,
        (a >> 16) & 0xffff,
        a & 0xfff,
        0x8000 | (b >> 48) & 0x3fff,
        b & 0xffff_ffff_ffff
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"{"id":3,"api_key":"k","feature_states":[{"feature":{"id":1,"name":"a"},"enabled":false,"feature_state_value":1.50}],"identity_overrides":[{"identifier":"u","identity_uuid":"x"},{"identifier":"v","identity_uuid":"x"}],"updated_at":"2026-11-21T00:18:32.135012+00:00"}"#;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn a_change_shows_and_moves_updated_at() {
        let mut document = Document::parse(TEXT, Timestamp::UNIX_EPOCH).unwrap();
        assert_eq!(document.updated_at(), at("2026-11-21T00:18:32.135012Z"));
        document
            .change_flag("a", &FlagChange { enabled: Some(true), value: None }, at("2026-11-22T00:00:00Z"))
            .unwrap();
        let page = document.page(0..0).unwrap();
        assert!(page.contains(r#""enabled":true,"feature_state_value":1.50"#), "{page}");
        assert!(
            page.ends_with(r#""identity_overrides":[],"updated_at":"2026-11-22T00:00:00.000000+00:00"}"#),
            "{page}"
        );
    }

    #[test]
    fn an_unknown_feature_is_refused_by_name() {
        let mut document = Document::parse(TEXT, Timestamp::UNIX_EPOCH).unwrap();
        let error = document.change_flag("b", &FlagChange::default(), Timestamp::UNIX_EPOCH).unwrap_err();
        assert_eq!(error.to_string(), "no feature `b` in the document; it has: a");
    }

    #[test]
    fn pages_split_overrides_and_renew_their_uuids() {
        let document = Document::parse(TEXT, Timestamp::UNIX_EPOCH).unwrap();
        let first = document.page(0..1).unwrap();
        assert!(first.contains(r#""identifier":"u""#) && !first.contains(r#""identifier":"v""#), "{first}");
        assert!(!first.contains(r#""identity_uuid":"x""#), "{first}");
        assert_ne!(first, document.page(0..1).unwrap());
    }

    #[test]
    fn null_is_a_value_and_absence_is_not() {
        let null: FlagChange = serde_json::from_str(r#"{"value":null}"#).unwrap();
        assert_eq!(null.value, Some(Value::Null));
        let absent: FlagChange = serde_json::from_str(r#"{"enabled":true}"#).unwrap();
        assert_eq!(absent.value, None);
    }

    #[test]
    fn uuids_are_version_4() {
        let uuid = random_uuid();
        let shape: Vec<usize> = uuid.split('-').map(str::len).collect();
        assert_eq!(shape, [8, 4, 4, 4, 12], "{uuid}");
        assert_eq!(uuid.as_bytes()[14], b'4', "{uuid}");
    }
}
