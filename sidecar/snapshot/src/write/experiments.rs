//! Experiments: their metadata behind the tails of contexts, and digests that include what identities get of them.

use super::WriteError;
use super::blob::{Blob, offset};
use crate::format::{
    layout::{METADATA_DIGITS, experiment_variant, write_experiment},
    model::{Context, Environment, Feature, Variant},
};
use crate::values::{hash::digest_of, json, rows::Span};

/// Metadata of a state of a feature, if an experiment runs on the feature; empty if this state has none.
pub(super) type Metadata<'a> = Option<&'a str>;

/// Returns the metadata of a feature's default.
pub(super) fn of_default(environment: &Environment, feature: usize) -> Metadata<'_> {
    let experiment = environment.experiments.get(&feature)?;
    Some(experiment.default.as_deref().unwrap_or_default())
}

/// Returns the metadata of a segment's override, by the segment and the position of the override.
pub(super) fn of_override(environment: &Environment, feature: usize, place: (usize, usize)) -> Metadata<'_> {
    let experiment = environment.experiments.get(&feature)?;
    Some(experiment.overrides.get(&place).map_or("", String::as_str))
}

/// True if the feature has variants by its type.
pub(super) fn is_multivariate(feature: &Feature) -> bool {
    feature.kind == "MULTIVARIATE"
}

/// Appends the tail of a context and its metadata, and returns the span of the tail.
pub(super) fn append_tail(tail: &[u8], metadata: &str, blob: &mut Blob) -> Result<Span, WriteError> {
    let length = format!("{:0METADATA_DIGITS$x}", metadata.len());
    let span = blob.append(&[tail, length.as_bytes(), metadata.as_bytes()].concat())?;
    Ok(Span { start: span.start, length: offset(tail.len())? })
}

/// Returns the digest of a flag in this state: of its own value, or of one of its variants.
pub(super) fn digest(feature: &Feature, context: &Context, chosen: Option<&Variant>, metadata: Metadata<'_>) -> u64 {
    let value = chosen.map_or(&context.value, |variant| &variant.value);
    let mut content = value.as_bytes().to_vec();
    if let Some(metadata) = metadata {
        let mut name = String::new();
        let chosen = chosen.map(|variant| {
            let key = variant.key.as_ref()?;
            json::write_string(key, &mut name);
            Some(name.as_bytes())
        });
        let variant = experiment_variant(chosen, context.split.is_some(), is_multivariate(feature));
        write_experiment(variant, metadata.as_bytes(), &mut content);
    }
    digest_of(feature.id, context.enabled, &content)
}
