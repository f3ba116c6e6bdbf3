//! Loads a snapshot from a directory or from exported objects.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, bail};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use remora_snapshot::{Snapshot, files};
use serde_json::Value;

use crate::{directory, parts};

/// Loads a snapshot from a directory, or from a JSON file with ConfigMaps or Secrets.
pub(super) fn snapshot(path: &Path, environment: Option<&str>) -> anyhow::Result<Snapshot<Vec<u8>>> {
    if path.is_dir() {
        return Ok(directory::read(path, environment)?);
    }
    let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    let object: Value = serde_json::from_slice(&bytes).with_context(|| {
        format!("{} is neither a directory nor the output of `kubectl get configmap NAME -o json`", path.display())
    })?;
    from_objects(&object).with_context(|| path.display().to_string())
}

/// Refusal of the objects of more than one revision.
const SEVERAL: &str = "the objects hold several revisions: export the objects of one";

/// Loads a snapshot from one object, or from a list of the objects of one revision. A core in parts that is kept as an
/// earlier revision has no file `core`.
fn from_objects(object: &Value) -> anyhow::Result<Snapshot<Vec<u8>>> {
    let several = object.get("items").and_then(Value::as_array);
    let objects: Vec<&Value> = several.map_or_else(|| vec![object], |items| items.iter().collect());
    let (mut cores, mut parts, mut overrides) = (Vec::new(), BTreeMap::new(), Vec::new());
    for object in objects {
        let data = ["binaryData", "data"].into_iter().find_map(|member| object.get(member)?.as_object());
        for (name, content) in data.into_iter().flatten() {
            if name != files::CORE && !files::is_core_part(name) && !files::is_overrides(name) {
                continue;
            }
            let bytes = content.as_str().and_then(|text| BASE64_STANDARD.decode(text).ok());
            let bytes = bytes.with_context(|| format!("file {name} is not base64"))?;
            match name.as_str() {
                files::CORE => cores.push(bytes),
                name if !files::is_core_part(name) => overrides.push(bytes),
                name if parts.insert(name.to_owned(), bytes).is_some() => bail!(SEVERAL),
                _ => {}
            }
        }
    }
    let mut snapshot = match (cores.pop(), cores.is_empty()) {
        (Some(core), true) => parts::read(core, |name| {
            let part = parts.remove(name);
            part.with_context(|| {
                format!("the objects hold no file `{name}`, which `core` names: export all objects of one revision")
            })
        })?,
        (Some(_), false) => bail!(SEVERAL),
        (None, _) if parts.is_empty() => bail!(
            "the objects hold no file `core`: export the object remora-…-core, or all objects remora-…-history-REVISION-core…"
        ),
        (None, _) => {
            let parts: Vec<Vec<u8>> = parts.into_values().collect();
            Snapshot::read(parts.concat()).with_context(|| {
                format!("the {} files `core-…` are no whole core: export all objects of one revision", parts.len())
            })?
        }
    };
    for bytes in overrides {
        snapshot.attach(bytes)?;
    }
    Ok(snapshot)
}
