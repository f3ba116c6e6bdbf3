//! Renders the end of an object whose last member is the array of all flags. A part of the array need not be copied:
//! bytes that a whole cohort shares are sent from the cache.

use std::ops::Range;

use crate::evaluate::{
    evaluation::{Evaluation, Individual, Winner},
    role::Role,
    subject::Subject,
};
use crate::format::view::View;
use crate::render::{
    answer::{Array, Last, Part, each_part, write_array, write_outcome},
    cohort::{Cohort, Cohorts, END, Found, Gap, Key, Own, Shared, Start},
};

/// Result of rendering the end of an object.
#[derive(Debug)]
pub struct Flags {
    /// Digest, as [`write_flags`](crate::Snapshot::write_flags) returns it.
    pub digest: u64,
    /// The part that was not copied, and its offset in the output.
    pub shared: Option<(usize, Shared)>,
}

/// Appends the array of all flags and the closing brace, except for a shared part.
pub(crate) fn finish_with_flags(
    evaluation: &Evaluation<'_>,
    subject: &mut Subject,
    role: Role,
    cohorts: &Cohorts,
    out: &mut Vec<u8>,
) -> Flags {
    evaluation.hold(subject);
    // A flag that a condition has read depends on more than claims.
    let has_cohort = subject.identified && !subject.resolution.has_results();
    let found = if has_cohort { cohorts.find(Key { role, claims: subject.choice.claims() }) } else { Found::Nothing };
    match found {
        Found::Kept(shared) => fill(evaluation, subject, role, shared, out),
        Found::Again => {
            let others = Evaluation { individual: None, ..*evaluation };
            others.decide_all(subject);
            let shared = Shared::of(put_together(&others, subject, role));
            cohorts.keep(Key { role, claims: subject.choice.claims() }, &shared);
            fill(evaluation, subject, role, shared, out)
        }
        Found::Nothing => {
            evaluation.decide_all(subject);
            let digest = write_array(evaluation, subject, role, out);
            out.push(b'}');
            Flags { digest, shared: None }
        }
    }
}

/// Renders the answer that every identity with the subject's claims shares, without identity overrides.
fn put_together(evaluation: &Evaluation<'_>, subject: &Subject, role: Role) -> Cohort {
    let view = &evaluation.view;
    let (default, _, digest) = view.default_answer(role);
    let expected = default.length as usize;
    let mut bytes = Vec::with_capacity(expected + expected / 8);
    let mut starts = Vec::with_capacity(view.features().len() + 1);
    let mut cohort = Cohort::default();
    let mut difference = 0_u64;
    let mut array = Array { out: &mut bytes, last: Last::Bracket };
    each_part(view, subject, role, |part| {
        if array.is_too_long() {
            return;
        }
        array.separate();
        let start = Start { at: array.out.len(), difference };
        difference = difference.wrapping_add(match part {
            Part::Objects(objects) => {
                starts.extend(objects.edges().map(|edge| Start {
                    at: start.at + edge.at as usize,
                    difference: start.difference.wrapping_add(edge.difference),
                }));
                objects.write(view, &mut array)
            }
            Part::One(feature) => {
                starts.push(start);
                let winner = evaluation.chosen(subject, feature);
                if cohort.leave(evaluation, role, feature, winner) {
                    0
                } else {
                    write_outcome(evaluation, subject, role, feature, winner, &mut array)
                }
            }
        });
    });
    array.close();
    // The last object has no comma after it, even if a gap or a hidden flag follows.
    let end = bytes.len();
    starts.push(Start { at: end, difference });
    starts.iter_mut().for_each(|start| start.at = start.at.min(end));
    bytes.extend_from_slice(END);
    (cohort.bytes, cohort.starts, cohort.digest) = (bytes, starts, digest.wrapping_add(difference));
    cohort.shrink_to_fit();
    cohort
}

/// Appends a cohort's answer, except for the part that is not copied, and the subject's flags in the gaps.
fn fill(
    evaluation: &Evaluation<'_>,
    subject: &mut Subject,
    role: Role,
    mut shared: Shared,
    out: &mut Vec<u8>,
) -> Flags {
    let mut missing = std::mem::take(&mut subject.gaps);
    if let Some(individual) = &evaluation.individual {
        missing.clear();
        missing.extend_from_slice(&shared.cohort().gaps);
        individual.add_to(&mut missing, &evaluation.view);
        shared = shared.between(&missing);
    }
    let cohort = shared.cohort();
    let gaps = if evaluation.individual.is_some() { &missing } else { &cohort.gaps };
    let room = std::mem::take(&mut subject.gap_places);
    let percentages = cohort.places(gaps, evaluation, subject, room);

    let (mut digest, mut place, mut from) = (cohort.digest, None, 0);
    out.push(b'[');
    let mut array = Array { out, last: Last::Bracket };
    let mut copy = |array: &mut Array<'_>, stretch: Range<usize>| {
        let part = shared.part();
        let out = array.go_on(if stretch.end < cohort.end() { Last::Comma } else { Last::Object });
        let mut rest = stretch.start;
        if stretch.start == part.start && !part.is_empty() {
            place = Some(out.len());
            rest = part.end;
        }
        out.extend_from_slice(cohort.bytes.get(rest..stretch.end).unwrap_or_default());
    };
    for (Gap { feature, own }, percentage) in gaps.iter().zip(&percentages) {
        if array.is_too_long() {
            break;
        }
        let (flag, difference) = cohort.flag(*feature);
        if from < flag.start {
            copy(&mut array, from..flag.start);
        }
        from = flag.end;
        let added = match own {
            Own::Override(row) => {
                write_outcome(evaluation, subject, role, *feature, Winner::Individual(*row), &mut array)
            }
            Own::Split(split) => {
                cohort.split(*split).map_or(0, |flag| flag.write(&evaluation.view, subject, *percentage, &mut array))
            }
        };
        digest = digest.wrapping_add(added).wrapping_sub(difference);
    }
    if from < cohort.end() {
        copy(&mut array, from..cohort.bytes.len());
    } else {
        array.close();
        array.out.extend_from_slice(END);
    }
    (subject.gaps, subject.gap_places) = (missing, percentages);
    Flags { digest, shared: place.map(|place| (place, shared)) }
}

impl Individual<'_> {
    /// Adds the identity's own flags to the gaps, in place of gaps of the same features.
    fn add_to(&self, gaps: &mut Vec<Gap>, view: &View<'_>) {
        let own = self.items.iter().zip(0..).filter_map(|(item, row)| {
            Some(Gap { feature: view.feature_with_id(item.feature)?, own: Own::Override(row) })
        });
        gaps.extend(own);
        gaps.sort_unstable_by_key(|gap| {
            let row = if let Own::Override(row) = gap.own { row } else { u32::MAX };
            (gap.feature, row)
        });
        gaps.dedup_by_key(|gap| gap.feature);
    }
}
