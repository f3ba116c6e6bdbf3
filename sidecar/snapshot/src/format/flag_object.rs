//! The constant bytes of a flag's object in Flagsmith's dialect.

/// The bytes between the head of a flag object and its value.
#[inline(always)]
pub(crate) const fn state(enabled: bool) -> &'static [u8] {
    if enabled { b"true,\"feature_state_value\":" } else { b"false,\"feature_state_value\":" }
}
/// The bytes after the value of a flag object.
pub(crate) const END: &[u8] = b"},";

/// `"control"` as JSON: the variant of a flag with variants of which none is chosen.
pub(crate) const CONTROL: &[u8] = b"\"control\"";

/// Returns the variant's name that an experiment adds to the flags of identities, as JSON. `chosen` is the chosen variant,
/// with its name as JSON if it has one. As in Flagsmith's API, a feature with variants has the control variant if its
/// override has no variants.
pub(crate) fn experiment_variant(chosen: Option<Option<&[u8]>>, has_split: bool, is_multivariate: bool) -> &[u8] {
    match chosen {
        Some(Some(name)) => name,
        None if has_split || is_multivariate => CONTROL,
        _ => b"null",
    }
}

/// Appends the members that an experiment adds to the flags of identities: the variant as JSON, and the metadata of the
/// experiment as JSON or nothing. SDKs record exposures by them.
pub(crate) fn write_experiment(variant: &[u8], metadata: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(b",\"variant\":");
    out.extend_from_slice(variant);
    if !metadata.is_empty() {
        out.extend_from_slice(b",\"metadata\":");
        out.extend_from_slice(metadata);
    }
}
