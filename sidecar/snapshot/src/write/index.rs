//! The index of segments: for each slot, which segments are left with which of its values. It is made of the very
//! comparisons that programs make, asked of the places where values can stand between those that are compared with.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use super::WriteError;
use super::blob::{Blob, offset};
use super::conjuncts::{Conjunct, Family, Places, Question};
use crate::condition::{UNORDERED, accepts, relation_of};
use crate::hash::Hash96;
use crate::layout::{BLOCK, Block, Column, Listed, Mark, Row, Span};

/// The index's tables, as they are stored.
#[derive(Default)]
pub(super) struct Index {
    pub(super) blocks: Vec<u8>,
    pub(super) columns: Vec<u8>,
    pub(super) marks: Vec<u8>,
    pub(super) listed: Vec<u8>,
}

/// What a segment asks of single slots; `None`: it has no rules, and nobody belongs to it.
pub(super) type Asked<'a> = Option<Vec<Conjunct<'a>>>;

/// Makes the index of all segments, in their order.
pub(super) fn write(segments: &[Asked<'_>], blob: &mut Blob) -> Result<Index, WriteError> {
    let mut index = Index::default();
    for block in segments.chunks(BLOCK) {
        let mut by_property: BTreeMap<usize, Conjuncts<'_>> = BTreeMap::new();
        let mut all = 0;
        for (number, conjuncts) in block.iter().enumerate() {
            let Some(conjuncts) = conjuncts else { continue };
            let bit = 1 << number;
            all |= bit;
            for conjunct in conjuncts {
                by_property.entry(conjunct.property).or_default().0.push((bit, conjunct));
            }
        }
        let columns = Span { start: offset(index.columns.len() / Column::SIZE)?, length: offset(by_property.len())? };
        for (property, conjuncts) in by_property {
            let column = index.column(property, &conjuncts, blob)?;
            index.columns.extend_from_slice(&column.encode());
        }
        index.blocks.extend_from_slice(&Block { all, columns }.encode());
    }
    Ok(index)
}

/// What the segments of a block, a bit each, ask of one slot.
#[derive(Default)]
struct Conjuncts<'a>(Vec<(u64, &'a Conjunct<'a>)>);

/// How texts can be looked up in; other values are what they are in all families.
const ALL: &[Family] = &[Family::Texts, Family::Versions, Family::Sets];
const COMPARED: &[Family] = &[Family::Texts, Family::Versions];

impl<'a> Conjuncts<'a> {
    /// The segments that are left where questions are answered like this.
    fn left(&self, families: &[Family], holds: impl Fn(&Question<'a>) -> bool) -> u64 {
        self.of(families).fold(u64::MAX, |left, (bit, conjunct)| {
            let is_left = conjunct.questions.iter().any(&holds) != conjunct.negated;
            if is_left { left } else { left & !bit }
        })
    }

    /// The segments that are left with a value that is in no set, and stands like this to what is compared with. Without
    /// a relation, that cannot be cast to its type.
    fn left_compared(&self, families: &[Family], relation: impl Fn(&Places<'a>) -> Option<u8>) -> u64 {
        self.left(families, |question| match question {
            Question::Set(set) => *set,
            Question::Compare(operator, places) => {
                relation(places).is_some_and(|relation| accepts(*operator as u8, relation))
            }
            Question::In(_) => false,
        })
    }

    fn of(&self, families: &[Family]) -> impl Iterator<Item = (u64, &'a Conjunct<'a>)> {
        self.0.iter().copied().filter(|(_, conjunct)| families.contains(&conjunct.family))
    }

    fn questions(&self, families: &[Family]) -> impl Iterator<Item = &'a Question<'a>> {
        self.of(families).flat_map(|(_, conjunct)| &conjunct.questions)
    }
}

impl Index {
    fn column(&mut self, property: usize, conjuncts: &Conjuncts<'_>, blob: &mut Blob) -> Result<Column, WriteError> {
        let boolean =
            |value: bool| conjuncts.left_compared(ALL, |places| Some(relation_of(value.cmp(&places.boolean))));
        let (below_texts, texts) = self.scale(
            (conjuncts, &[Family::Texts]),
            |places| Some(places.text),
            |a, b| a.as_bytes().cmp(b.as_bytes()),
            |text| Ok(blob.intern(text.as_bytes())?.to_word()),
        )?;
        let (below_versions, versions) =
            self.scale((conjuncts, &[Family::Versions]), |places| places.version, Ord::cmp, |version| Ok(*version))?;
        let (below_integers, integers) = self.scale(
            (conjuncts, COMPARED),
            |places| places.integer,
            Ord::cmp,
            |integer| Ok(integer.cast_unsigned()),
        )?;
        let (below_floats, floats) = self.scale(
            (conjuncts, ALL),
            |places| places.float,
            |a, b| a.partial_cmp(b).unwrap_or(Ordering::Equal), // none of them is a NaN
            |float| Ok(float.to_bits()),
        )?;
        let (unlisted, listed) = self.sets(conjuncts)?;
        Ok(Column {
            unset: conjuncts.left(ALL, |question| matches!(question, Question::Set(false))),
            no: boolean(false),
            yes: boolean(true),
            unordered: conjuncts.left_compared(ALL, |places| places.float.map(|_| UNORDERED)),
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
            padding: 0,
        })
    }

    /// The marks of one type of values, and what is left below the first.
    fn scale<'a, T>(
        &mut self,
        (conjuncts, families): (&Conjuncts<'a>, &[Family]),
        place: impl Fn(&Places<'a>) -> Option<T>,
        order: impl Fn(&T, &T) -> Ordering,
        mut stored: impl FnMut(&T) -> Result<u64, WriteError>,
    ) -> Result<(u64, Span), WriteError> {
        let mut points: Vec<T> = conjuncts
            .questions(families)
            .filter_map(|question| match question {
                Question::Compare(_, places) => place(places),
                _ => None,
            })
            .collect();
        points.sort_by(&order);
        points.dedup_by(|a, b| order(a, b) == Ordering::Equal);
        // Where a value stands: 0 below the first point, 1 at it, 2 above it, 3 at the next.
        let left = |standing: usize| {
            conjuncts.left_compared(families, |places| {
                let of = place(places)?;
                let point = points.partition_point(|other| order(other, &of) == Ordering::Less);
                Some(relation_of(standing.cmp(&(2 * point + 1))))
            })
        };
        let marks = Span { start: offset(self.marks.len() / Mark::SIZE)?, length: offset(points.len())? };
        for (number, point) in points.iter().enumerate() {
            let mark = Mark { point: stored(point)?, at: left(2 * number + 1), above: left(2 * number + 2) };
            self.marks.extend_from_slice(&mark.encode());
        }
        Ok((left(0), marks))
    }

    /// The members of sets, and what is left with what is in none.
    fn sets(&mut self, conjuncts: &Conjuncts<'_>) -> Result<(u64, Span), WriteError> {
        let members: BTreeSet<Hash96> = conjuncts
            .questions(&[Family::Sets])
            .filter_map(|question| match question {
                Question::In(members) => Some(members),
                _ => None,
            })
            .flatten()
            .copied()
            .collect();
        let left = |value: Option<&Hash96>| {
            conjuncts.left(&[Family::Sets], |question| match question {
                Question::Set(set) => *set,
                Question::Compare(..) => false,
                Question::In(members) => value.is_some_and(|value| members.contains(value)),
            })
        };
        let rows = Span { start: offset(self.listed.len() / Listed::SIZE)?, length: offset(members.len())? };
        for hash in &members {
            self.listed.extend_from_slice(&Listed { hash: *hash, at: left(Some(hash)) }.encode());
        }
        Ok((left(None), rows))
    }
}
