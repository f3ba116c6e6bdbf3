//! Document as the stub stores it: the parts that it changes are parsed, the rest stays as received.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::ops::Range;

use anyhow::Context as _;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use super::ordered_object::OrderedObject;
use super::silent_change::{SilentChange, in_states};

/// Members of the environment that the API does not hand out.
const PRIVATE: [&str; 2] = ["dynatrace_config", "onboarding_pending"];
/// Member of an identity with the traits that the server sets, such as those of cohorts. The API does not hand it out.
const SYSTEM_TRAITS: &str = "system_traits";

/// Change of one feature's state in the environment. An absent member leaves its part unchanged.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct FlagChange {
    /// True to turn the feature on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// New value; `null` is a value too.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub value: Option<Value>,
}

impl FlagChange {
    /// Applies the change to a feature state.
    pub(super) fn apply(&self, state: &mut OrderedObject) -> anyhow::Result<()> {
        if let Some(enabled) = self.enabled {
            state.set("enabled", &enabled)?;
        }
        if let Some(value) = &self.value {
            state.set("feature_state_value", value)?;
        }
        Ok(())
    }
}

fn present<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

/// Environment document.
#[derive(Clone, Debug)]
pub struct Document {
    members: OrderedObject,
    overrides: Vec<OrderedObject>,
    id: i64,
    client_key: String,
    updated_at: Timestamp,
}

impl Document {
    /// Parses a document as Flagsmith emits it. A document without `updated_at` gets `now`.
    ///
    /// # Errors
    ///
    /// Returns an error if the text is not a JSON object or has no `api_key`.
    pub fn parse(text: &str, now: Timestamp) -> anyhow::Result<Self> {
        let mut members: OrderedObject = serde_json::from_str(text).context("the document is no JSON object")?;
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

    /// Returns the environment's client-side key.
    #[must_use]
    pub fn client_key(&self) -> &str {
        &self.client_key
    }

    /// Returns the time of the last change.
    #[must_use]
    pub fn updated_at(&self) -> Timestamp {
        self.updated_at
    }

    /// Returns the number of identity overrides, which pages divide.
    #[must_use]
    pub fn overrides(&self) -> usize {
        self.overrides.len()
    }

    /// Returns the environment's numeric ID, which cursors contain.
    #[must_use]
    pub fn id(&self) -> i64 {
        self.id
    }

    /// Changes a feature's state in the environment and, with it, `updated_at`.
    ///
    /// # Errors
    ///
    /// Returns an error if no feature has that name, or the document's shape is not Flagsmith's.
    pub fn change_flag(&mut self, name: &str, change: &FlagChange, now: Timestamp) -> anyhow::Result<()> {
        in_states(&mut self.members, "feature_states", name, |state| change.apply(state))?;
        self.touch(now)
    }

    /// Applies a change that does not move `updated_at`.
    ///
    /// # Errors
    ///
    /// Returns an error if the document lacks the changed part, or its shape is not Flagsmith's.
    pub fn change_silently(&mut self, change: &SilentChange) -> anyhow::Result<()> {
        change.apply(&mut self.members, &mut self.overrides)
    }

    /// Sets the time of the last change to `now`.
    pub(super) fn touch(&mut self, now: Timestamp) -> anyhow::Result<()> {
        self.updated_at = now;
        Ok(self.members.set("updated_at", &emitted(now))?)
    }

    /// Returns the whole document with the identity overrides of `range`, each with a new `identity_uuid`, as the API
    /// does. Members that the API does not hand out are left out: members of a cohort have their traits in one of them.
    pub(super) fn page(&self, range: Range<usize>) -> anyhow::Result<String> {
        let mut page = self.members.clone();
        PRIVATE.into_iter().for_each(|member| page.remove(member));
        let mut overrides: Vec<OrderedObject> = self.overrides.get(range).unwrap_or_default().to_vec();
        for identity in &mut overrides {
            identity.remove(SYSTEM_TRAITS);
            if identity.get::<&RawValue>("identity_uuid")?.is_some() {
                identity.set("identity_uuid", &random_uuid())?;
            }
        }
        page.set("identity_overrides", &overrides)?;
        Ok(serde_json::to_string(&page)?)
    }
}

/// Formats an instant as Django does.
fn emitted(instant: Timestamp) -> String {
    instant.strftime("%Y-%m-%dT%H:%M:%S%.6f+00:00").to_string()
}

/// Returns a version 4 UUID. The standard library's hash keys are random, which is sufficient here.
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
    fn change_is_visible_and_moves_updated_at() {
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
    fn unknown_feature_is_refused_with_its_name() {
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
    fn page_has_no_member_that_api_keeps_to_itself() {
        let text = r#"{"api_key":"k","onboarding_pending":true,"dynatrace_config":null,"project":{"segments":[{"name":"cohort","rules":[{"conditions":[{"operator":"IS_SET","property_":"flagsmith_cohort_1"}]}]}]},"identity_overrides":[{"identifier":"u","system_traits":[{"trait_key":"flagsmith_cohort_1"}]}],"feature_states":[{"metadata":{"experiment":{"id":1}}}]}"#;
        let page = Document::parse(text, Timestamp::UNIX_EPOCH).unwrap().page(0..1).unwrap();
        for member in ["system_traits", "onboarding_pending", "dynatrace_config"] {
            assert!(!page.contains(member), "{page}");
        }
        assert!(page.contains("IS_SET") && page.contains(r#""metadata":{"experiment":{"id":1}}"#), "{page}");
    }

    #[test]
    fn null_is_value_and_absence_is_none() {
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
