//! The writer of the segment index: for each slot, the candidates per value. It uses the same comparisons as programs,
//! and applies them to the values and the intervals between the values that conditions compare with.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use super::WriteError;
use super::blob::{Blob, offset};
use super::block::{ALL, Conjuncts, ORDERED};
use super::conjuncts::{Computation, Computed, Conjunct, Family, Members, Pattern, Places, Question};
use super::free_rows::FreeRows;
use super::joint::{Joint as Joined, Work};
use super::sweep::Sweep;
use crate::format::{
    layout::{BLOCK, Block, Column, Find, Joint, Listed, Mark, Modulus, Operator, Share, Want},
    model::Rule,
};
use crate::segments::condition::{UNORDERED, accepts, relation_of};
use crate::values::{
    hash::{NO_TOKEN, Token, bucket_of, numbers},
    rows::{Row, Span},
};

/// The tables of the index, as stored.
#[derive(Default)]
pub(super) struct Index {
    pub(super) blocks: Vec<u8>,
    pub(super) columns: Vec<u8>,
    pub(super) moduli: Vec<u8>,
    pub(super) shares: Vec<u8>,
    pub(super) marks: Vec<u8>,
    pub(super) listed: Vec<u8>,
    pub(super) joints: Vec<u8>,
    pub(super) finds: Vec<u8>,
    pub(super) wants: Vec<u8>,
}

/// Maximum number of steps for combining the patterns of all slots, which take less than a second. Patterns of later
/// slots stay in programs.
const MOST_JOINT_WORK: u64 = 1 << 26;

/// Maximum size in bytes of the combined patterns of all slots: half of an object. Other patterns stay in programs.
const MOST_JOINT_BYTES: usize = 512 << 10;

/// Rules for which the index has no room, with the row of their segment.
pub(super) type Returned = Vec<(usize, Rule)>;

/// The requirements of one segment on single slots.
pub(super) struct Asked<'a> {
    /// Seed of the segment's percentages.
    pub(super) seed: &'a str,
    /// True if the segment has no rules, so that no identity matches it.
    pub(super) is_empty: bool,
    pub(super) conjuncts: Vec<Conjunct<'a>>,
    pub(super) computed: Vec<Computed>,
}

/// Builds the index of all segments, in their order, and appends automata to `programs`.
pub(super) fn write(
    segments: &[Asked<'_>],
    blob: &mut Blob,
    programs: &mut Vec<u8>,
) -> Result<(Index, Returned), WriteError> {
    let mut index = Index::default();
    let mut returned = Returned::new();
    let work = Work::new(MOST_JOINT_WORK);
    for (first, block) in segments.chunks(BLOCK).enumerate() {
        let mut by_property: BTreeMap<usize, Conjuncts<'_>> = BTreeMap::new();
        let mut all = 0;
        let (moduli, shares) = (index.moduli.len(), index.shares.len());
        for (number, asked) in block.iter().enumerate().filter(|(_, asked)| !asked.is_empty) {
            let bit = 1 << number;
            all |= bit;
            for conjunct in &asked.conjuncts {
                by_property.entry(conjunct.property).or_default().push(bit, conjunct);
            }
            for computed in &asked.computed {
                index.compute(bit, asked.seed, computed, blob)?;
            }
        }
        let rows = |from: usize, to: usize, size: usize| {
            Ok::<_, WriteError>(Span { start: offset(from / size)?, length: offset((to - from) / size)? })
        };
        let (moduli, shares) =
            (rows(moduli, index.moduli.len(), Modulus::SIZE)?, rows(shares, index.shares.len(), Share::SIZE)?);
        let columns = Span { start: offset(index.columns.len() / Column::SIZE)?, length: offset(by_property.len())? };
        for (property, mut conjuncts) in by_property {
            let room = MOST_JOINT_BYTES.saturating_sub(programs.len() + index.finds.len());
            let (joined, left) = conjuncts.join(room, &work);
            returned.extend(left.into_iter().map(|(bit, rule)| (first * BLOCK + bit.trailing_zeros() as usize, rule)));
            let joint = index.joint(&conjuncts, joined, programs)?;
            let column = Column { joint, ..index.column(property, &conjuncts, blob)? };
            index.columns.extend_from_slice(&column.encode());
        }
        index.blocks.extend_from_slice(&Block { all, columns, moduli, shares }.encode());
    }
    Ok((index, returned))
}

/// Returns the number of rows of a hash table for this number of members. At least a quarter is free, so that probing
/// is short.
fn room(members: usize) -> usize {
    if members == 0 { 0 } else { (members + members.div_ceil(3)).next_power_of_two() }
}

impl Index {
    fn compute(&mut self, segment: u64, seed: &str, computed: &Computed, blob: &mut Blob) -> Result<(), WriteError> {
        let (slot, negated) = (offset(computed.property)?, u32::from(computed.negated));
        match computed.of {
            Computation::Modulo { divisor, remainder } => {
                self.moduli.extend(Modulus { divisor, remainder, segment, slot, negated }.encode());
            }
            Computation::Percentage { threshold } => {
                let seed = blob.intern(seed.as_bytes())?;
                self.shares.extend(Share { threshold, seed, segment, slot, negated }.encode());
            }
        }
        Ok(())
    }

    fn column(&mut self, property: usize, conjuncts: &Conjuncts<'_>, blob: &mut Blob) -> Result<Column, WriteError> {
        let boolean = |value: bool| {
            let text: &[u8] = if value { b"True" } else { b"False" };
            conjuncts.left_compared(ORDERED, |places| Some(relation_of(value.cmp(&places.boolean))))
                & conjuncts.left_printed(text)
        };
        let (below_texts, texts) = self.scale(
            (conjuncts, &[Family::Texts]),
            |places| Some(places.text),
            |_| &[],
            |a, b| a.as_bytes().cmp(b.as_bytes()),
            |text| Ok(blob.intern(text.as_bytes())?.to_word()),
        )?;
        let (below_versions, versions) = self.scale(
            (conjuncts, &[Family::Versions]),
            |places| places.version,
            |_| &[],
            Ord::cmp,
            |version| Ok(*version),
        )?;
        let (below_integers, integers) = self.scale(
            (conjuncts, ORDERED),
            |places| places.integer,
            |members| &members.integers,
            Ord::cmp,
            |integer| Ok(integer.cast_unsigned()),
        )?;
        let (below_floats, floats) = self.scale(
            (conjuncts, ORDERED),
            |places| places.float,
            |_| &[],
            |a, b| a.partial_cmp(b).unwrap_or(Ordering::Equal), // NaN is excluded before
            |float| Ok(float.to_bits()),
        )?;
        let (unlisted, listed) = self.sets(conjuncts)?;
        Ok(Column {
            unset: conjuncts.left(ALL, |question| matches!(question, Question::Set(false))),
            no: boolean(false),
            yes: boolean(true),
            unordered: conjuncts.left_compared(ORDERED, |places| places.float.map(|_| UNORDERED)),
            unversioned: conjuncts.left_compared(&[Family::Versions], |_| None),
            below_texts,
            texts,
            below_versions,
            versions,
            below_integers,
            integers,
            below_floats,
            floats,
            unlisted,
            listed,
            slot: offset(property)?,
            joint: 0,
        })
    }

    /// Writes the breakpoints of one type of values, and returns the candidates below the first.
    fn scale<'a, T: Copy>(
        &mut self,
        (conjuncts, families): (&Conjuncts<'a>, &[Family]),
        place: impl Fn(&Places<'a>) -> Option<T>,
        members: impl Fn(&Members) -> &[T],
        order: impl Fn(&T, &T) -> Ordering,
        mut stored: impl FnMut(&T) -> Result<u64, WriteError>,
    ) -> Result<(u64, Span), WriteError> {
        let mut points: Vec<T> = Vec::new();
        for question in conjuncts.questions(families) {
            match question {
                Question::Compare(_, places) => points.extend(place(places)),
                Question::In(set) => points.extend(members(set)),
                Question::Set(_) | Question::Has(_) | Question::Lacks(_) => {}
            }
        }
        points.sort_by(&order);
        points.dedup_by(|a, b| order(a, b) == Ordering::Equal);
        let before = |of: &T| points.partition_point(|other| order(other, of) == Ordering::Less);
        // Position of a value: 0 below the first point, 1 at it, 2 above it, 3 at the next.
        let mut sweep = Sweep::new(conjuncts, families, |question, turns| match question {
            Question::Set(set) => *set,
            Question::Compare(operator, places) => place(places).is_some_and(|point| {
                let holds = |ordering| accepts(*operator as u8, relation_of(ordering));
                let (less, equal, greater) = (holds(Ordering::Less), holds(Ordering::Equal), holds(Ordering::Greater));
                let at = 2 * before(&point) + 1;
                turns.turn(at, less, equal);
                turns.turn(at + 1, equal, greater);
                less
            }),
            Question::In(set) => {
                for member in members(set) {
                    let at = 2 * before(member) + 1;
                    turns.turn(at, false, true);
                    turns.turn(at + 1, true, false);
                }
                false
            }
            Question::Has(_) | Question::Lacks(_) => false,
        });
        let below = sweep.left;
        let marks = Span { start: offset(self.marks.len() / Mark::SIZE)?, length: offset(points.len())? };
        for (number, point) in points.iter().enumerate() {
            let at = sweep.advance(2 * number + 1);
            let above = sweep.advance(2 * number + 2);
            self.marks.extend_from_slice(&Mark { point: stored(point)?, at, above }.encode());
        }
        Ok((below, marks))
    }

    /// Writes the exact matches of texts, and returns the candidates for all other texts.
    fn sets(&mut self, conjuncts: &Conjuncts<'_>) -> Result<(u64, Span), WriteError> {
        // Questions of this family are equalities, so the order of another text does not matter.
        let other = |operator: Operator| accepts(operator as u8, relation_of(Ordering::Greater));
        let mut sweep = Sweep::new(conjuncts, &[Family::Sets], |question, turns| match question {
            Question::Set(set) => *set,
            Question::Compare(operator, places) => {
                let equal = accepts(*operator as u8, relation_of(Ordering::Equal));
                turns.turn(places.token, other(*operator), equal);
                other(*operator)
            }
            Question::In(set) => {
                set.tokens.iter().for_each(|token| turns.turn(*token, false, true));
                false
            }
            Question::Has(_) | Question::Lacks(_) => false,
        });
        let unlisted = sweep.left;
        // Texts without a change of candidates are listed as well.
        let mut members: Vec<Token> = Vec::new();
        for question in conjuncts.questions(&[Family::Sets]) {
            match question {
                Question::Compare(_, places) => members.push(places.token),
                Question::In(set) => members.extend(&set.tokens),
                Question::Set(_) | Question::Has(_) | Question::Lacks(_) => {}
            }
        }
        members.sort_unstable();
        members.dedup();
        let mut rows = vec![Listed { token: NO_TOKEN, at: unlisted }; room(members.len())];
        let mut free = FreeRows::new(rows.len());
        for token in &members {
            let row = free.take(bucket_of(numbers(token)) as usize);
            if let Some(row) = rows.get_mut(row) {
                *row = Listed { token: *token, at: sweep.at(*token) };
            }
        }
        let span = Span { start: offset(self.listed.len() / Listed::SIZE)?, length: offset(rows.len())? };
        self.listed.extend(rows.iter().flat_map(Listed::encode));
        Ok((unlisted, span))
    }

    /// Writes the combined patterns of one slot, and returns their row plus 1, or 0.
    fn joint(
        &mut self,
        conjuncts: &Conjuncts<'_>,
        joined: Option<Joined>,
        programs: &mut Vec<u8>,
    ) -> Result<u32, WriteError> {
        let Some(Joined { program, finds }) = joined else { return Ok(0) };
        let patterns = conjuncts.patterns();
        let bit =
            |pattern: &Pattern<'_>| patterns.iter().position(|other| other == pattern).map_or(0, |place| 1 << place);
        let bits = |of: &dyn Fn(&Pattern<'_>) -> bool| {
            patterns.iter().filter(|pattern| of(pattern)).fold(0, |bits, pattern| bits | bit(pattern))
        };
        let wants: Vec<Want> = conjuncts
            .of(&[Family::Patterns])
            .map(|(segment, conjunct)| {
                let mut want = Want { found: 0, lacking: 0, segment, negated: u64::from(conjunct.negated) };
                for question in &conjunct.questions {
                    match question {
                        Question::Has(pattern) => want.found |= bit(pattern),
                        Question::Lacks(pattern) => want.lacking |= bit(pattern),
                        Question::Set(_) | Question::Compare(..) | Question::In(_) => {}
                    }
                }
                want
            })
            .collect();
        let row = Joint {
            program: Span { start: offset(programs.len())?, length: offset(program.len())? },
            finds: Span { start: offset(self.finds.len() / Find::SIZE)?, length: offset(finds.len())? },
            wants: Span { start: offset(self.wants.len() / Want::SIZE)?, length: offset(wants.len())? },
            automata: bits(&|pattern| matches!(pattern, Pattern::Automaton(_))),
        };
        programs.extend_from_slice(&program);
        self.finds.extend(finds.iter().flat_map(Find::encode));
        self.wants.extend(wants.iter().flat_map(Want::encode));
        self.joints.extend_from_slice(&row.encode());
        offset(self.joints.len() / Joint::SIZE)
    }
}
