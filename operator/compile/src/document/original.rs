//! The document as its source wrote it, for SDKs in local evaluation, without pruned parts.
//!
//! SDKs of different languages need different members, and the strictest need nearly all of them. So only the members
//! that decide about pruning are parsed, and everything else is copied, known or unknown. Three things are not copied:
//!
//! - pruned parts;
//! - members of the environment whose names end in `_config`: older servers send settings of integrations in them,
//!   secrets included, and no SDK reads them;
//! - `identity_uuid`, which Flagsmith generates anew for each answer: consecutive numbers replace it, so that equal
//!   documents have equal bytes.

use std::{collections::HashSet, fmt, io};

use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, Visitor},
};
use serde_json::value::RawValue;

/// Bytes of a document, page by page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Original(Vec<Vec<u8>>);

/// Reason why an original could not be written. It was parsed before, so either the output failed or the bytes differ.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The bytes are not the document that was parsed before. Holds line and column.
    #[error("cannot parse the document again: line {0}, column {1}")]
    Read(usize, usize),
    /// The output could not be written.
    #[error("cannot compress the document: {0}")]
    Write(#[from] io::Error),
}

impl From<serde_json::Error> for Error {
    fn from(error: serde_json::Error) -> Self {
        // The message is dropped, because it may quote the document.
        Self::Read(error.line(), error.column())
    }
}

impl Original {
    /// Creates an original of one page.
    pub fn new(page: Vec<u8>) -> Self {
        Self(vec![page])
    }

    /// Appends a later page.
    pub fn append_page(&mut self, page: Vec<u8>) {
        self.0.push(page);
    }

    /// Writes one document with the `served` features: the first page, with the identity overrides of all pages if
    /// `identity_overrides` is true.
    ///
    /// # Errors
    /// A page is not the one that was parsed before, or `out` fails.
    pub(crate) fn write(
        &self,
        served: &HashSet<&str>,
        identity_overrides: bool,
        out: &mut dyn io::Write,
    ) -> Result<(), Error> {
        let Some(first) = self.0.first() else { return Ok(()) };
        let filter = Filter { served, pages: if identity_overrides { &self.0 } else { &[] } };
        filter.environment(&serde_json::from_slice(first)?, out)
    }
}

/// Parts of the document to keep.
struct Filter<'a> {
    served: &'a HashSet<&'a str>,
    /// Pages whose identity overrides are kept.
    pages: &'a [Vec<u8>],
}

impl Filter<'_> {
    fn environment(&self, environment: &Members<'_>, out: &mut dyn io::Write) -> Result<(), Error> {
        let members = environment.0.iter().filter(|(name, _)| !name.ends_with("_config"));
        object(members, out, |name, value, out| match name {
            "feature_states" => self.states(value, out),
            "project" => object(&Members::of(value)?.0, out, |name, value, out| match name {
                "segments" => array(items(value)?, out, |segment, out| self.segment(segment, out)),
                _ => copy(value, out),
            }),
            "identity_overrides" => self.identities(out),
            _ => copy(value, out),
        })
    }

    fn segment(&self, segment: &RawValue, out: &mut dyn io::Write) -> Result<(), Error> {
        object(&Members::of(segment)?.0, out, |name, value, out| match name {
            "feature_states" => self.states(value, out),
            _ => copy(value, out),
        })
    }

    fn states(&self, states: &RawValue, out: &mut dyn io::Write) -> Result<(), Error> {
        array(self.served(states)?, out, copy)
    }

    /// Returns the states of served features.
    fn served<'s>(&self, states: &'s RawValue) -> Result<Vec<&'s RawValue>, Error> {
        let mut served = Vec::new();
        for state in items(states)? {
            let about: About = serde_json::from_str(state.get())?;
            served.extend(self.served.contains(about.feature.name.as_str()).then_some(state));
        }
        Ok(served)
    }

    /// Writes the identities of all pages that still have a served flag.
    fn identities(&self, out: &mut dyn io::Write) -> Result<(), Error> {
        out.write_all(b"[")?;
        let mut number = 0_u64;
        for page in self.pages {
            let page: Members<'_> = serde_json::from_slice(page)?;
            let identities = page.0.iter().find(|(name, _)| name == "identity_overrides");
            for identity in identities.map_or(Ok(Vec::new()), |(_, identities)| items(identities))? {
                let members = Members::of(identity)?;
                let features = members.0.iter().find(|(name, _)| name == "identity_features");
                let features = features.map_or(Ok(Vec::new()), |(_, features)| self.served(features))?;
                if features.is_empty() {
                    continue;
                }
                out.write_all(if number == 0 { b"" } else { b"," })?;
                number += 1;
                object(&members.0, out, |name, value, out| match name {
                    "identity_features" => array(features.iter().copied(), out, copy),
                    "identity_uuid" => Ok(write!(out, "\"00000000-0000-8000-8000-{number:012x}\"")?),
                    _ => copy(value, out),
                })?;
            }
        }
        Ok(out.write_all(b"]")?)
    }
}

/// The feature of a state.
#[derive(Deserialize)]
struct About {
    feature: Named,
}

#[derive(Deserialize)]
struct Named {
    name: String,
}

/// Members of an object, in their order.
struct Members<'a>(Vec<(String, &'a RawValue)>);

impl<'a> Members<'a> {
    fn of(object: &'a RawValue) -> Result<Self, Error> {
        Ok(serde_json::from_str(object.get())?)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Collect;
        impl<'de> Visitor<'de> for Collect {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Self::Value, M::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(Collect)
    }
}

/// Returns the items of an array. `null` is an empty array.
fn items(array: &RawValue) -> Result<Vec<&RawValue>, Error> {
    let items: Option<Vec<&RawValue>> = serde_json::from_str(array.get())?;
    Ok(items.unwrap_or_default())
}

fn copy(value: &RawValue, out: &mut dyn io::Write) -> Result<(), Error> {
    Ok(out.write_all(value.get().as_bytes())?)
}

fn object<'m, 'a: 'm>(
    members: impl IntoIterator<Item = &'m (String, &'a RawValue)>,
    out: &mut dyn io::Write,
    mut write: impl FnMut(&str, &'a RawValue, &mut dyn io::Write) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut before: &[u8] = b"{";
    for (name, value) in members {
        out.write_all(before)?;
        before = b",";
        serde_json::to_writer(&mut *out, name)?;
        out.write_all(b":")?;
        write(name, value, out)?;
    }
    Ok(out.write_all(if before == b"{" { b"{}" } else { b"}" })?)
}

fn array<'a>(
    items: impl IntoIterator<Item = &'a RawValue>,
    out: &mut dyn io::Write,
    mut write: impl FnMut(&'a RawValue, &mut dyn io::Write) -> Result<(), Error>,
) -> Result<(), Error> {
    out.write_all(b"[")?;
    let mut before: &[u8] = b"";
    for item in items {
        out.write_all(before)?;
        before = b",";
        write(item, out)?;
    }
    Ok(out.write_all(b"]")?)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::{
        document,
        prune::{Rules, Selection, prune},
    };

    fn state(name: &str) -> Value {
        json!({"feature": {"id": 1, "name": name, "unknown": [1.50]}, "enabled": true, "feature_state_value": null, "odd": {"x": "é"}})
    }

    fn identity(who: &str, uuid: &str, features: &[&str]) -> Value {
        let features: Vec<Value> = features.iter().map(|name| state(name)).collect();
        json!({"identifier": who, "identity_uuid": uuid, "dashboard_alias": null, "identity_features": features})
    }

    fn page(identities: &[Value]) -> Value {
        json!({
            "id": 1, "api_key": "key", "updated_at": "now", "future": {"kept": 1e2}, "amplitude_config": {"api_key": "canary"},
            "project": {"id": 2, "organisation": {"id": 3}, "segments": [
                {"id": 4, "name": "s", "rules": [{"type": "ALL", "rules": [], "conditions": [
                    {"operator": "EQUAL", "value": "x", "property_": "$.flags.gone.enabled"}]}],
                 "feature_states": [state("kept"), state("gone")]},
                {"id": 5, "name": "t", "rules": []}]},
            "feature_states": [state("gone"), state("kept")],
            "identity_overrides": identities,
        })
    }

    fn written(pages: &[Value], exclude: &str, drop_overrides: bool) -> Value {
        let pages: Vec<Vec<u8>> = pages.iter().map(|page| serde_json::to_vec(page).unwrap()).collect();
        let mut document = document::parse(&pages[0]).unwrap();
        let mut original = Original::new(pages[0].clone());
        for page in &pages[1..] {
            document.append_page(document::parse(page).unwrap()).unwrap();
            original.append_page(page.clone());
        }
        let exclude = &[exclude.to_owned()];
        let selection = Selection { exclude, drop_identity_overrides: drop_overrides, ..Selection::default() };
        let pruned = prune(document, &Rules::compile(&selection).unwrap());
        let mut out = Vec::new();
        let overridden = !pruned.document.identity_overrides.is_empty();
        original.write(&pruned.served().collect(), overridden, &mut out).unwrap();
        serde_json::from_slice(&out).unwrap()
    }

    #[test]
    fn pruned_document_lacks_pruned_features_and_nothing_else() {
        let pages = [
            page(&[identity("a", "1", &["kept", "gone"]), identity("b", "2", &["gone"])]),
            page(&[identity("c", "3", &["kept"])]),
        ];
        let mut expected = page(&[
            identity("a", "00000000-0000-8000-8000-000000000001", &["kept"]),
            identity("c", "00000000-0000-8000-8000-000000000002", &["kept"]),
        ]);
        expected["feature_states"] = json!([state("kept")]);
        expected["project"]["segments"][0]["feature_states"] = json!([state("kept")]);
        expected.as_object_mut().unwrap().remove("amplitude_config");
        assert_eq!(written(&pages, "gone", false), expected);
        let nothing = written(&pages, "gone", true);
        assert_eq!(nothing["identity_overrides"], json!([]), "{nothing}");
    }

    #[test]
    fn generated_uuids_do_not_change_document() {
        let of = |uuid: &str| written(&[page(&[identity("a", uuid, &["kept"])])], "x", false);
        assert_eq!(of("one"), of("other"));
    }
}
