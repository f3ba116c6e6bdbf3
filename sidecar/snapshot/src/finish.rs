//! The end of an object whose last member is the array of all flags, of which a part need not be copied: what all of a
//! cohort have is sent from where it is kept.

use crate::answer::{Array, Last, write_array, write_chosen, write_outcome};
use crate::cohort::{Cohort, Cohorts, Found, Gap, Key, Shared};
use crate::evaluation::{Evaluation, Winner};
use crate::role::Role;
use crate::subject::Subject;

/// What follows the last flag.
const END: &[u8] = b"]}";

/// What came of it.
#[derive(Debug)]
pub struct Flags {
    /// As [`write_flags`](crate::Snapshot::write_flags) returns it.
    pub digest: u64,
    /// A part that was not copied, and the place in the output where it belongs.
    pub shared: Option<(usize, Shared)>,
}

/// Appends the array of all flags and the brace behind it, but for a part that others have as well.
pub(crate) fn finish_with_flags(
    evaluation: &Evaluation<'_>,
    subject: &mut Subject,
    role: Role,
    cohorts: &Cohorts,
    out: &mut Vec<u8>,
) -> Flags {
    evaluation.hold(subject);
    // What is somebody's own is no cohort's.
    let is_own = evaluation.individual.is_some() || !subject.identified || subject.resolution.has_results();
    let found = if is_own { Found::Nothing } else { cohorts.find(Key { role, claims: subject.choice.claims() }) };
    match found {
        Found::Kept(shared) => {
            let splits = evaluation.view.split_features();
            let defaults = shared.cohort().gaps.iter().filter(|gap| gap.winner == Winner::Default);
            let rows = defaults.map(|gap| splits.partition_point(|split| split.word < gap.feature));
            evaluation.place_in_splits(subject, rows);
            fill(evaluation, subject, role, shared, out)
        }
        Found::Again => {
            evaluation.decide_all(subject);
            let shared = Shared::of(put_together(evaluation, subject, role));
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

impl Evaluation<'_> {
    /// Does the identity itself decide between variants of a feature?
    fn is_split(&self, number: u32, winner: Winner) -> bool {
        let Some(feature) = self.view.features().get(number) else { return false };
        let context = match winner {
            Winner::Default => Some(feature.context),
            Winner::Segment(rank) => self.ranked(&feature).get(u32::from(rank)).map(|ranked| ranked.context),
            Winner::Individual(_) => None,
        };
        context.and_then(|context| self.view.contexts().get(context)).is_some_and(|context| context.split != 0)
    }
}

/// What all have who have the subject's claims, and nothing of their own.
fn put_together(evaluation: &Evaluation<'_>, subject: &Subject, role: Role) -> Cohort {
    let expected = evaluation.view.default_answer(role).0.length as usize;
    let (mut bytes, mut gaps) = (Vec::with_capacity(expected + expected / 8), Vec::new());
    let mut array = Array { out: &mut bytes, last: Last::Bracket };
    let digest = write_chosen(evaluation, subject, role, &mut array, |array, feature| {
        let winner = evaluation.chosen(subject, feature);
        if !evaluation.is_split(feature, winner) {
            return write_outcome(evaluation, subject, role, feature, winner, array);
        }
        let place = array.go_on(Last::Comma).len();
        gaps.push(Gap { feature, winner, place });
        0
    });
    let mut cohort = Cohort { bytes, gaps, digest };
    if !cohort.ends_in_gap() {
        finish(&mut cohort.bytes);
    }
    cohort
}

/// Ends an array of objects with commas behind them, and the object around it.
fn finish(out: &mut Vec<u8>) {
    if out.last() == Some(&b',') {
        out.pop();
    }
    out.extend_from_slice(END);
}

/// Appends what a cohort has in common, but for the part that is not copied, and what the subject has in the gaps.
fn fill(evaluation: &Evaluation<'_>, subject: &Subject, role: Role, shared: Shared, out: &mut Vec<u8>) -> Flags {
    let (cohort, part) = (shared.cohort(), shared.part());
    let mut digest = cohort.digest;
    let mut place = None;
    let mut gaps = cohort.gaps.iter();
    out.push(b'[');
    for stretch in cohort.stretches() {
        let mut rest = stretch.start;
        if stretch.start == part.start && stretch.end >= part.end && !part.is_empty() {
            place = Some(out.len());
            rest = part.end;
        }
        out.extend_from_slice(cohort.bytes.get(rest..stretch.end).unwrap_or_default());
        let Some(Gap { feature, winner, .. }) = gaps.next().copied() else { break };
        let mut array = Array { out, last: Last::Comma };
        digest = digest.wrapping_add(write_outcome(evaluation, subject, role, feature, winner, &mut array));
    }
    if cohort.ends_in_gap() {
        finish(out);
    }
    Flags { digest, shared: place.map(|place| (place, shared)) }
}
