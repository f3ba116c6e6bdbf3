//! The tables of a core file.

use std::collections::HashSet;

use super::answers::{Answers, PreparedAnswer, flagsmith_head, flagsmith_tail, ofrep_head, ofrep_tail};
use super::blob::{Blob, offset, within};
use super::code::{self, Operands};
use super::experiments::{self, Metadata, is_multivariate};
use super::free_rows::FreeRows;
use super::index::{self, Index, SegmentPredicates};
use super::override_runs::OverrideRuns;
use super::predicates::Extraction;
use super::ranks::{Place, RankedOverrides};
use super::{WriteError, head};
use crate::evaluate::visibility::Role;
use crate::format::{
    layout::{
        ALL_SEGMENTS, CONSTANT, CORE_MAGIC, CORE_START, Context, EXPERIMENT, FLAG, Feature, FeatureId, HEADER,
        HIDE_DISABLED, IDENTIFIER, IDENTITY_FREE, IDENTITY_FREE_SEGMENTS, IDENTITY_KEY, Instruction, Key, Literal,
        MULTIVARIATE, OFREP_BOOLEANS_ENABLED, OFREP_DISABLED_VALUES, OFREP_OBJECTS, Origin, PLAIN,
        PreparedAnswer as AnswerRow, RANKS, SAME_AS, SECTIONS, SERVER_ONLY, SERVES_DOCUMENT, SLOTS, Section, Segment,
        SegmentOverride, Slot, Split, TARGETED, TraitName, UNSERVED, Variant, Word,
    },
    model::{self, BooleanFlags, Derivation, DisabledFlags, Environment, EnvironmentFlags, ObjectFlags},
    overrides,
};
use crate::values::{
    hash::{Fingerprint, NameKey},
    rows::{Row, Span},
};

/// A core without its answers and overrides, which are known only after evaluation with these tables.
pub(super) struct Tables {
    sections: [Vec<u8>; SECTIONS],
    blob: Vec<u8>,
    fingerprint: Fingerprint,
}

/// The tables while they are built.
struct Builder {
    blob: Blob,
    contexts: Rows<Context, 24>,
    splits: Rows<Split, 16>,
    variants: Rows<Variant, 40>,
    /// Maximum size of the object in bytes.
    limit: usize,
}

/// Encoded rows.
struct Rows<R, const N: usize> {
    bytes: Vec<u8>,
    row: std::marker::PhantomData<R>,
}

impl<R, const N: usize> Default for Rows<R, N> {
    fn default() -> Self {
        Self { bytes: Vec::new(), row: std::marker::PhantomData }
    }
}

impl<R: Row<N>, const N: usize> Rows<R, N> {
    fn next(&self) -> Result<u32, WriteError> {
        offset(self.bytes.len() / N)
    }
    fn push(&mut self, row: &R) -> Result<u32, WriteError> {
        let index = self.next()?;
        self.bytes.extend_from_slice(&row.encode());
        Ok(index)
    }
}

/// Refuses an environment with more of something than the fields of the format can count.
fn check_numbers(environment: &Environment, overrides: &RankedOverrides) -> Result<(), WriteError> {
    let most = usize::from(u16::MAX);
    let of_one_feature = overrides.by_feature.iter().map(Vec::len).max().unwrap_or_default();
    for (what, count, limit) in [
        ("features", environment.features.len(), most),
        ("segments", environment.segments.len(), most),
        ("properties", environment.properties.len(), SLOTS),
        ("segment overrides of one feature", of_one_feature, RANKS),
    ] {
        if count > limit {
            return Err(WriteError::TooMany { what, count, limit });
        }
    }
    Ok(())
}

impl Tables {
    /// Builds the tables of a core of at most `limit` bytes.
    pub(super) fn of(environment: &Environment, fingerprint: Fingerprint, limit: usize) -> Result<Self, WriteError> {
        let overrides = RankedOverrides::of(&environment.segments, environment.features.len());
        check_numbers(environment, &overrides)?;
        let mut builder = Builder {
            blob: Blob::new(limit),
            contexts: Rows::default(),
            splits: Rows::default(),
            variants: Rows::default(),
            limit,
        };
        let mut sections = [const { Vec::new() }; SECTIONS];
        let mut put = |section: Section, bytes: Vec<u8>| {
            if let Some(place) = sections.get_mut(section as usize) {
                *place = bytes;
            }
        };

        let runs = OverrideRuns::of(environment, &overrides, &mut builder.blob)?;
        let mut ranked = Rows::<SegmentOverride, 8>::default();
        let mut features = Rows::<Feature, 56>::default();
        let individual: HashSet<i64> = environment
            .identity_overrides
            .iter()
            .flat_map(|identity| &identity.flags)
            .map(|flag| flag.feature)
            .collect();
        for (number, own) in overrides.by_feature.iter().enumerate() {
            let Some(feature) = environment.features.get(number) else { break };
            let targeted = !own.is_empty() || individual.contains(&feature.id);
            let row = builder.feature(environment, (number, feature), own, &runs, targeted, &mut ranked)?;
            features.push(&row)?;
        }
        put(Section::Features, features.bytes);
        put(Section::SegmentOverrides, ranked.bytes);
        let feature_names = environment.features.iter().map(|feature| Some(&*feature.name));
        put(Section::FeatureNames, names(feature_names, |_, word| Word { word }));
        put(Section::SplitFeatures, split_features(environment));
        put(Section::FeatureIds, feature_ids(&environment.features)?);

        let mut operands = Operands::default();
        let (segment_masks, ranges) = runs.segment_masks()?;
        let ([segments, code], index) = builder.segments(environment, &ranges, fingerprint, &mut operands)?;
        put(Section::Segments, segments);
        put(Section::Blocks, index.blocks);
        put(Section::AttributeIndexes, index.attribute_indexes);
        put(Section::ModuloRules, index.modulo_rules);
        put(Section::PercentageRules, index.percentage_rules);
        put(Section::Breakpoints, index.breakpoints);
        put(Section::ExactMatches, index.exact_matches);
        put(Section::CombinedDfas, index.combined_dfas);
        put(Section::AcceptSets, index.accept_sets);
        put(Section::PatternPredicates, index.pattern_predicates);
        put(Section::SegmentMasks, segment_masks);
        put(Section::OverrideMasks, runs.masks);
        put(Section::OverrideRuns, runs.rows);
        put(Section::Ranks, runs.ranks);
        put(Section::ObjectOffsets, runs.offsets);
        put(Section::Code, code);
        put(Section::BigIntegers, operands.big_integers);
        put(Section::Members, operands.members);
        put(Section::Patterns, operands.patterns);
        put(Section::Programs, operands.programs);

        let [slots, derived, literals] = builder.slots(environment)?;
        put(Section::Slots, slots);
        put(Section::Derived, derived);
        let trait_names = environment.properties.iter().map(|property| property.name.as_deref());
        put(
            Section::TraitNames,
            names(trait_names, |NameKey { length, first, last }, slot| TraitName { first, last, length, slot }),
        );

        put(Section::Keys, keys(environment, fingerprint)?);
        put(Section::Literals, literals);
        put(Section::Notes, environment.notes.join("\n").into_bytes());
        put(Section::Origin, builder.origin(environment)?);
        put(Section::Contexts, builder.contexts.bytes);
        put(Section::Splits, builder.splits.bytes);
        put(Section::Variants, builder.variants.bytes);
        Ok(Self { sections, blob: builder.blob.bytes, fingerprint })
    }

    /// Records that the overrides are in separate files, which this number of leading hash bits chooses.
    pub(super) fn record_division(&mut self, bits: u32) {
        if let Some(bytes) = self.sections.get_mut(Section::Origin as usize)
            && let Some(row) = bytes.first_chunk()
        {
            let origin = Origin::decode(row);
            *bytes = Origin { flags: overrides::with_division(origin.flags, bits), ..origin }.encode().to_vec();
        }
    }

    /// Lays out the complete file, except for its revision and checksum.
    pub(super) fn lay_out(
        &self,
        environment: &Environment,
        answers: &Answers,
        defaults: &Answers,
        overrides: &[u8],
    ) -> Result<Vec<u8>, WriteError> {
        let mut blob = self.blob.clone();
        let mut bounds = Rows::<Word, 4>::default();
        let mut rows = Rows::<AnswerRow, 20>::default();
        let mut known: Vec<(&PreparedAnswer, AnswerRow)> = Vec::new();
        for answer in [&answers.client, &answers.server, &defaults.client, &defaults.server] {
            let row = if let Some((_, row)) = known.iter().find(|(other, _)| *other == answer) {
                *row
            } else {
                let row = AnswerRow {
                    body: Span { start: offset(blob.len())?, length: offset(answer.body.len())? },
                    bounds: bounds.next()?,
                    digest: answer.digest,
                };
                blob.extend_from_slice(&answer.body);
                for bound in &answer.bounds {
                    bounds.push(&Word { word: offset(*bound)? })?;
                }
                known.push((answer, row));
                row
            };
            rows.push(&row)?;
        }
        debug_assert_eq!(answers.client.bounds.len(), environment.features.len() + 1);

        let mut file = vec![0; CORE_START];
        for (index, section) in self.sections.iter().enumerate() {
            let content: &[u8] = match index {
                _ if index == Section::Blob as usize => &blob,
                _ if index == Section::Answers as usize => &rows.bytes,
                _ if index == Section::Bounds as usize => &bounds.bytes,
                _ if index == Section::Overrides as usize => overrides,
                _ => section,
            };
            while !file.len().is_multiple_of(8) {
                file.push(0);
            }
            let place = Span { start: offset(file.len())?, length: offset(content.len())? };
            file.extend_from_slice(content);
            let at = HEADER + index * 8;
            super::put(&mut file, at, &place.start.to_le_bytes());
            super::put(&mut file, at + 4, &place.length.to_le_bytes());
        }
        offset(file.len())?;
        head(&mut file, CORE_MAGIC, self.fingerprint);
        Ok(file)
    }
}

impl Builder {
    /// Adds a context and returns its row. The context's tail may reuse the end of a stored object.
    fn context(
        &mut self,
        feature: &model::Feature,
        context: &model::Context,
        object: Span,
        metadata: Metadata<'_>,
    ) -> Result<u32, WriteError> {
        let tail = flagsmith_tail(context);
        let head = (object.length as usize).checked_sub(tail.len());
        let tail = match (head, metadata) {
            (_, Some(metadata)) => experiments::append_tail(&tail, metadata, &mut self.blob)?,
            (Some(head), None) => Span { start: object.start + offset(head)?, length: offset(tail.len())? },
            (None, None) => self.blob.intern(&tail)?,
        };
        let split = match &context.split {
            None => 0,
            Some(split) => {
                let row = Split {
                    seed: self.blob.intern(split.seed.as_bytes())?,
                    variants: self.variants.next()?,
                    length: offset(split.variants.len())?,
                };
                let mut limit = 0.0;
                for variant in &split.variants {
                    limit += variant.weight;
                    let mut key = String::new();
                    if let Some(name) = &variant.key {
                        crate::values::json::write_string(name, &mut key);
                    }
                    let row = Variant {
                        limit,
                        value: self.blob.intern(variant.value.as_bytes())?,
                        key: self.blob.intern(key.as_bytes())?,
                        weight: self.blob.intern(variant.weight_text.as_bytes())?,
                        digest: experiments::digest(feature, context, Some(variant), metadata),
                    };
                    self.variants.push(&row)?;
                }
                self.splits.push(&row)? + 1
            }
        };
        self.contexts.push(&Context {
            tail,
            split,
            enabled: u32::from(context.enabled),
            digest: experiments::digest(feature, context, None, metadata),
        })
    }

    fn feature(
        &mut self,
        environment: &Environment,
        (number, feature): (usize, &model::Feature),
        own: &[Place],
        runs: &OverrideRuns,
        targeted: bool,
        ranked: &mut Rows<SegmentOverride, 8>,
    ) -> Result<Feature, WriteError> {
        let metadata = experiments::of_default(environment, number);
        let context = self.context(feature, &feature.default, Span::default(), metadata)?;
        let first = ranked.next()?;
        for place in own {
            if let Some(content) =
                environment.segments.get(place.segment).and_then(|segment| segment.overrides.get(place.position))
            {
                let metadata = experiments::of_override(environment, number, (place.segment, place.position));
                let context = self.context(feature, &content.context, runs.object(*place), metadata)?;
                ranked.push(&SegmentOverride { segment: offset(place.segment)?, context })?;
            }
        }
        let mut flags = 0;
        for (bit, set) in [
            (SERVER_ONLY, feature.server_only),
            (TARGETED, targeted),
            (UNSERVED, !feature.served),
            (EXPERIMENT, metadata.is_some()),
            (MULTIVARIATE, metadata.is_some() && is_multivariate(feature)),
        ] {
            if set {
                flags |= bit;
            }
        }
        Ok(Feature {
            id: feature.id,
            name: self.blob.intern(feature.name.as_bytes())?,
            flagsmith_head: self.blob.intern(&flagsmith_head(feature))?,
            ofrep_head: self.blob.intern(&ofrep_head(feature))?,
            ofrep_tail: self.blob.intern(&ofrep_tail(feature))?,
            context,
            overrides: first,
            overrides_length: offset(own.len())?,
            flags,
        })
    }

    /// Builds the segments, their programs, and the index. `masks` has the range of each segment in `SegmentMasks`.
    fn segments(
        &mut self,
        environment: &Environment,
        masks: &[Span],
        fingerprint: Fingerprint,
        operands: &mut Operands,
    ) -> Result<([Vec<u8>; 2], Index), WriteError> {
        let reads_flag = |condition: &model::Condition| {
            environment
                .properties
                .get(condition.property)
                .is_some_and(|property| matches!(property.derivation, Derivation::Flag { .. }))
        };
        let (mut segments, mut code) = (Rows::<Segment, 28>::default(), Vec::new());
        let (mut indexed, mut rest) = (Vec::new(), Vec::new());
        for segment in &environment.segments {
            // Reading a flag can have an effect, so segments that read flags are not indexed.
            let mut extraction = Extraction { fingerprint, predicates: Vec::new(), computed: Vec::new() };
            rest.push(match code::any_condition(&segment.rules, &reads_flag) {
                true => segment.rules.clone(),
                false => extraction.extract(&segment.rules),
            });
            let Extraction { predicates, computed, .. } = extraction;
            indexed.push(SegmentPredicates {
                seed: &segment.id,
                is_empty: segment.rules.is_empty(),
                predicates,
                computed,
            });
        }
        let (index, returned) = index::write(&indexed, &mut self.blob, &mut operands.programs)?;
        for (segment, rule) in returned {
            if let Some(rules) = rest.get_mut(segment) {
                rules.push(rule);
            }
        }
        for ((segment, masks), rules) in environment.segments.iter().zip(masks).zip(&rest) {
            let entry = code::write(&segment.id, rules, &reads_flag, fingerprint, operands, &mut self.blob, &mut code)?;
            within(code.len() * Instruction::SIZE + operands.bytes(), self.limit)?;
            let row = Segment {
                name: self.blob.intern(segment.name.as_bytes())?,
                entry,
                flags: if segment.identity_free { IDENTITY_FREE } else { 0 },
                masks: *masks,
                id: segment.id.parse().unwrap_or(0), // for people only: an id beyond the field becomes 0
            };
            segments.push(&row)?;
        }
        let code = code.iter().flat_map(Instruction::encode).collect();
        Ok(([segments.bytes, code], index))
    }

    /// Builds the slots, the list of derived slots, and the literals.
    fn slots(&mut self, environment: &Environment) -> Result<[Vec<u8>; 3], WriteError> {
        let (mut slots, mut derived, mut literals) =
            (Rows::<Slot, 16>::default(), Rows::<Word, 4>::default(), Rows::<Literal, 8>::default());
        for property in &environment.properties {
            let (derivation, argument) = match &property.derivation {
                Derivation::Plain => (PLAIN, 0),
                Derivation::Identifier => (IDENTIFIER, 0),
                Derivation::IdentityKey => (IDENTITY_KEY, 0),
                Derivation::SameAs(other) => (SAME_AS, offset(*other)?),
                Derivation::Constant(token) => {
                    (CONSTANT, literals.push(&Literal { token: self.blob.intern(token.as_bytes())? })?)
                }
                Derivation::Flag { feature, field } => (FLAG, offset(*feature)? | (*field as u32) << 24),
            };
            let name = self.blob.intern(property.name.as_deref().unwrap_or_default().as_bytes())?;
            let index = slots.push(&Slot { name, derivation, argument })?;
            if derivation != PLAIN {
                derived.push(&Word { word: index })?;
            }
        }
        Ok([slots.bytes, derived.bytes, literals.bytes])
    }

    fn origin(&mut self, environment: &Environment) -> Result<Vec<u8>, WriteError> {
        let origin = Origin {
            name: self.blob.intern(environment.name.as_bytes())?,
            client_key: self.blob.intern(environment.client_key.as_bytes())?,
            flags: if environment.hide_disabled { HIDE_DISABLED } else { 0 }
                | match environment.environment_flags {
                    EnvironmentFlags::Plain => 0,
                    EnvironmentFlags::IdentityFree => IDENTITY_FREE_SEGMENTS,
                    EnvironmentFlags::AllSegments => ALL_SEGMENTS,
                }
                | if environment.document.is_some() { SERVES_DOCUMENT } else { 0 }
                | match environment.ofrep.boolean_flags {
                    BooleanFlags::Value => 0,
                    BooleanFlags::Enabled => OFREP_BOOLEANS_ENABLED,
                }
                | match environment.ofrep.disabled_flags {
                    DisabledFlags::CodeDefault => 0,
                    DisabledFlags::Value => OFREP_DISABLED_VALUES,
                }
                | match environment.ofrep.object_flags {
                    ObjectFlags::Text => 0,
                    ObjectFlags::Object => OFREP_OBJECTS,
                },
        };
        Ok(origin.encode().to_vec())
    }
}

/// Returns the features whose answer depends on the identity even without overrides.
fn split_features(environment: &Environment) -> Vec<u8> {
    let features = environment.features.iter().zip(0_u32..);
    let split = features.filter(|(feature, index)| {
        feature.default.split.is_some() || environment.experiments.contains_key(&(*index as usize))
    });
    split.flat_map(|(_, index)| index.to_le_bytes()).collect()
}

fn feature_ids(features: &[model::Feature]) -> Result<Vec<u8>, WriteError> {
    let mut ids = Vec::new();
    for (index, feature) in features.iter().enumerate() {
        ids.push(FeatureId { id: feature.id, feature: offset(index)? });
    }
    ids.sort_by_key(|row| row.id);
    ids.dedup_by_key(|row| row.id); // the first of equal ids stays
    Ok(ids.iter().flat_map(FeatureId::encode).collect())
}

/// Builds a hash table of names with linear probing. A row has the name's key and the index of the name plus 1; all zero is
/// free.
fn names<'a, R: Row<N> + Default, const N: usize>(
    names: impl ExactSizeIterator<Item = Option<&'a str>>,
    row: impl Fn(NameKey, u32) -> R,
) -> Vec<u8> {
    let size = if names.len() == 0 { 0 } else { (names.len() * 2).next_power_of_two() };
    let mut buckets = vec![None; size];
    let mut free = FreeRows::new(size);
    for (index, name) in names.enumerate() {
        let Some(name) = name else { continue };
        let name_key = NameKey::of(name.as_bytes());
        if let Some(place) = buckets.get_mut(free.take(name_key.bucket() as usize)) {
            *place = Some(row(name_key, index as u32 + 1)); // counts were checked against u16
        }
    }
    buckets.into_iter().flat_map(|row| row.unwrap_or_default().encode()).collect()
}

fn keys(environment: &Environment, fingerprint: Fingerprint) -> Result<Vec<u8>, WriteError> {
    let mut keys = Rows::<Key, 20>::default();
    keys.push(&Key { hash: fingerprint.hash128(environment.client_key.as_bytes()), role: Role::Client as u32 })?;
    for key in &environment.server_keys {
        keys.push(&Key { hash: fingerprint.hash128(key.as_bytes()), role: Role::Server as u32 })?;
    }
    Ok(keys.bytes)
}
