//! Override runs: the overrides of segments as consecutive features, with ranks and the objects to write.

use std::collections::HashMap;

use super::WriteError;
use super::answers::{flagsmith_head, flagsmith_tail};
use super::blob::{Blob, offset};
use super::ranks::{Layer, Place, RankedOverrides, Strongest, layers};
use crate::format::{
    layout::{BLOCK, NO_OFFSETS, NO_RANK, ObjectOffset, OverrideMask, OverrideRun, Rank, Word},
    model::{Context, Environment, Feature},
};
use crate::values::{
    hash::digest_of,
    rows::{Row, Span},
};

/// Maximum number of consecutive features in a run that the segment does not override. They take no more bytes than the
/// row of another run and its last offset.
const GAP: u32 = 2;

/// The override runs of all segments.
#[derive(Default)]
pub(super) struct OverrideRuns {
    pub(super) rows: Vec<u8>,
    pub(super) ranks: Vec<u8>,
    pub(super) offsets: Vec<u8>,
    pub(super) masks: Vec<u8>,
    /// Rows of the masks of each segment.
    masks_by_segment: Vec<Vec<u32>>,
    /// Runs of each segment: first feature and row.
    starts: Vec<Vec<(u32, u32)>>,
    objects: HashMap<Place, Span>,
}

/// An override whose object does not depend on the request.
struct ConstantObject {
    /// The object with a comma; empty if the feature is hidden.
    object: Vec<u8>,
    /// Digest minus the digest of the feature's default.
    difference: u64,
}

/// An override as a part of a run.
struct Part {
    strongest: Strongest,
    constant: Option<ConstantObject>,
}

impl OverrideRuns {
    pub(super) fn of(
        environment: &Environment,
        overrides: &RankedOverrides,
        blob: &mut Blob,
    ) -> Result<Self, WriteError> {
        let mut runs = Self::default();
        let by_segment = overrides.by_segment(environment.segments.len());
        for ((number, segment), own) in environment.segments.iter().enumerate().zip(&by_segment) {
            let part = |strongest: &Strongest| {
                let strongest = *strongest;
                let feature = environment.features.get(strongest.feature as usize)?;
                let context = &segment.overrides.get(strongest.position)?.context;
                let constant = match environment.experiments.contains_key(&(strongest.feature as usize)) {
                    true => None, // what identities get of an experiment is not constant
                    false => ConstantObject::of(feature, context, environment.hide_disabled),
                };
                Some(Part { strongest, constant })
            };
            let parts: Vec<Part> = own.iter().filter_map(part).collect();
            runs.starts.push(Vec::new());
            for run in parts.chunk_by(|one, next| {
                next.strongest.feature - one.strongest.feature <= GAP + 1
                    && one.constant.is_some() == next.constant.is_some()
            }) {
                runs.add(number, run, blob)?;
            }
        }
        runs.add_masks(&layers(&by_segment, environment.features.len()))?;
        Ok(runs)
    }

    /// Adds the override masks, strongest first.
    fn add_masks(&mut self, layers: &[Layer]) -> Result<(), WriteError> {
        self.masks_by_segment.resize(self.starts.len(), Vec::new());
        for Layer { segment, features } in layers {
            let (Some(starts), Some(own)) = (self.starts.get(*segment), self.masks_by_segment.get_mut(*segment)) else {
                continue;
            };
            let place = |feature: u32| {
                let next = starts.partition_point(|(first, _)| *first <= feature);
                (feature / BLOCK as u32, next.checked_sub(1).and_then(|last| starts.get(last)).map(|(_, run)| *run))
            };
            for together in features.chunk_by(|one, next| place(*one) == place(*next)) {
                let Some((block, Some(run))) = together.first().map(|first| place(*first)) else { continue };
                let features = together.iter().fold(0, |features, feature| features | 1 << (feature % BLOCK as u32));
                own.push(offset(self.masks.len() / OverrideMask::SIZE)?);
                self.masks.extend(OverrideMask { features, block, run }.encode());
            }
        }
        Ok(())
    }

    /// Returns the rows of `SegmentMasks`, and the range of each segment in them.
    pub(super) fn segment_masks(&self) -> Result<(Vec<u8>, Vec<Span>), WriteError> {
        let (mut rows, mut ranges) = (Vec::new(), Vec::new());
        for own in &self.masks_by_segment {
            ranges.push(Span { start: offset(rows.len() / Word::SIZE)?, length: offset(own.len())? });
            rows.extend(own.iter().flat_map(|mask| Word { word: *mask }.encode()));
        }
        Ok((rows, ranges))
    }

    /// Returns the object of an override if it is constant, otherwise an empty span.
    pub(super) fn object(&self, place: Place) -> Span {
        self.objects.get(&place).copied().unwrap_or_default()
    }

    fn add(&mut self, segment: usize, run: &[Part], blob: &mut Blob) -> Result<(), WriteError> {
        let Some(first) = run.first() else { return Ok(()) };
        let feature = first.strongest.feature;
        let start = offset(self.ranks.len() / Rank::SIZE)?;
        let offsets =
            if first.constant.is_some() { offset(self.offsets.len() / ObjectOffset::SIZE)? } else { NO_OFFSETS };
        let mut object_offset = ObjectOffset { at: offset(blob.bytes.len())?, difference: 0 };
        let mut next = feature;
        for Part { strongest, constant } in run {
            let rank = |rank| Rank { rank }.encode();
            for _ in next..strongest.feature {
                self.ranks.extend(rank(NO_RANK));
                self.offsets.extend(constant.iter().flat_map(|_| object_offset.encode()));
            }
            self.ranks.extend(rank(strongest.rank));
            next = strongest.feature + 1;
            if let Some(ConstantObject { object, difference }) = constant {
                self.offsets.extend(object_offset.encode());
                let object = blob.append(object)?;
                let difference = object_offset.difference.wrapping_add(*difference);
                object_offset = ObjectOffset { at: object.start + object.length, difference };
                self.objects.insert(Place { segment, position: strongest.position }, object);
            }
        }
        if offsets != NO_OFFSETS {
            self.offsets.extend(object_offset.encode());
        }
        let ranks = Span { start, length: next - feature };
        let row = offset(self.rows.len() / OverrideRun::SIZE)?;
        self.starts.get_mut(segment).into_iter().for_each(|starts| starts.push((feature, row)));
        self.rows.extend(OverrideRun { feature, ranks, offsets }.encode());
        Ok(())
    }
}

impl ConstantObject {
    /// Returns `None` if the object is not constant: the context has variants, or the feature is not for every key.
    fn of(feature: &Feature, context: &Context, hides_disabled: bool) -> Option<Self> {
        if context.split.is_some() || feature.server_only || !feature.served {
            return None;
        }
        let shows = |context: &Context| context.enabled || !hides_disabled;
        let digest = |context: &Context| match shows(context) {
            true => digest_of(feature.id, context.enabled, context.value.as_bytes()),
            false => 0,
        };
        Some(Self {
            object: match shows(context) {
                true => [flagsmith_head(feature), flagsmith_tail(context)].concat(),
                false => Vec::new(),
            },
            difference: digest(context).wrapping_sub(digest(&feature.default)),
        })
    }
}
