//! Scratch memory of a request.

use remora_snapshot::RequestState;

use super::context_hash::TraitHash;

/// Scratch buffers that are kept between requests, so that a request allocates nothing.
#[derive(Default)]
pub(crate) struct Scratch {
    /// The identity that the snapshot evaluates.
    pub(crate) request: RequestState,
    /// The list of traits, as the answer echoes it.
    pub(crate) echo: Vec<u8>,
    /// Decoded strings: two, because a trait has a name and a value.
    pub(crate) name: String,
    pub(crate) text: String,
    /// Hashes of the traits, for the entity tag of an OFREP answer.
    pub(crate) trait_hashes: Vec<TraitHash>,
}
