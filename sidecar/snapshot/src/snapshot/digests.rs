//! The features of a snapshot with a digest of each, to compare two snapshots without copies of their content.

use std::{
    collections::HashMap,
    hash::{BuildHasher, Hasher},
};

use crate::Snapshot;
use crate::format::{
    layout::{Context, SERVER_ONLY, Split, UNSERVED},
    view::View,
};
use crate::values::rows::Span;

/// Bytes and rows that a look at all features may take, as a multiple of the bytes of the core. The writer stores every
/// text once, so that its cores take about one. Rows that others wrote may refer to the same bytes again and again.
const LOOKS: usize = 4;

/// A feature, without a copy of its content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FeatureDigest<'a> {
    /// Name of the feature.
    pub name: &'a str,
    /// Digest of the id, the visibility, the default and the overrides by segments.
    pub digest: u64,
}

impl<B: AsRef<[u8]>> Snapshot<B> {
    /// Returns the number of features that answers contain.
    pub fn served_features(&self) -> usize {
        self.view().features().iter().filter(|row| row.flags & UNSERVED == 0).count()
    }

    /// Lists the names of the features that answers contain. `None` if they have more bytes than the core, as only in a
    /// core that the writer did not write.
    pub fn served_names(&self) -> Option<Vec<&str>> {
        let view = self.view();
        let mut left = self.core.as_ref().len();
        let served = view.features().iter().filter(|row| row.flags & UNSERVED == 0);
        served
            .map(|row| {
                left = left.checked_sub(row.name.length as usize)?;
                Some(view.text(row.name))
            })
            .collect()
    }

    /// Lists the features in the order of the answers, with digests by `keys`. Digests by the same keys may be compared.
    /// Nothing is copied, and each text is read once. `None` if the rows refer to the same bytes so often that this takes
    /// longer than linear time, as only in a core that the writer did not write.
    pub fn feature_digests(&self, keys: &impl BuildHasher) -> Option<Vec<FeatureDigest<'_>>> {
        let view = self.view();
        let left = self.core.as_ref().len().saturating_mul(LOOKS);
        let mut digests = Digests { view, keys, spans: HashMap::new(), splits: HashMap::new(), left };
        let features = view.features().iter().map(|row| {
            digests.spend(row.name.length.saturating_add(1))?;
            let mut content = keys.build_hasher();
            content.write_i64(row.id);
            content.write_u32(row.flags & (SERVER_ONLY | UNSERVED));
            content.write_u64(digests.context(row.context)?);
            for ranked in view.segment_overrides().range(row.overrides, row.overrides_length).iter() {
                digests.spend(1)?;
                let segment = view.segments().get(ranked.segment).unwrap_or_default();
                content.write_u64(digests.span(segment.name)?);
                content.write_u64(digests.context(ranked.context)?);
            }
            Some(FeatureDigest { name: view.text(row.name), digest: content.finish() })
        });
        features.collect()
    }
}

/// Computes digests, each once.
struct Digests<'a, S> {
    view: View<'a>,
    keys: &'a S,
    spans: HashMap<Span, u64>,
    splits: HashMap<u32, u64>,
    /// Number of bytes and rows that may still be read.
    left: usize,
}

impl<S: BuildHasher> Digests<'_, S> {
    fn spend(&mut self, count: u32) -> Option<()> {
        self.left = self.left.checked_sub(count as usize)?;
        Some(())
    }

    fn span(&mut self, span: Span) -> Option<u64> {
        if let Some(known) = self.spans.get(&span) {
            return Some(*known);
        }
        self.spend(span.length)?;
        let digest = self.keys.hash_one(self.view.bytes(span));
        self.spans.insert(span, digest);
        Some(digest)
    }

    /// Returns the digest of state, value and variants of a context.
    fn context(&mut self, number: u32) -> Option<u64> {
        let context = self.view.contexts().get(number).unwrap_or_default();
        let (value, variants) = (self.span(context.tail)?, self.variants(context)?);
        Some(self.keys.hash_one((context.is_enabled(), value, variants)))
    }

    fn variants(&mut self, context: Context) -> Option<u64> {
        let Some(Split { variants, length, .. }) = self.view.split(context) else { return Some(0) };
        if let Some(known) = self.splits.get(&context.split) {
            return Some(*known);
        }
        self.spend(length)?;
        let mut content = self.keys.build_hasher();
        for variant in self.view.variants().range(variants, length).iter() {
            content.write_u64(self.span(variant.weight)?);
            content.write_u64(self.span(variant.value)?);
        }
        let digest = content.finish();
        self.splits.insert(context.split, digest);
        Some(digest)
    }
}
