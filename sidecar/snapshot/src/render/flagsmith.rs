//! Renders flags in Flagsmith's dialect. The objects of consecutive features that are stored as one byte range are
//! copied in one piece; the other objects are joined from their pieces.

use crate::evaluate::{
    Decisions,
    flag_overrides::FlagOverrides,
    outcome::Outcome,
    owners::Owner,
    visibility::{Role, Visibility},
};
use crate::format::{
    layout::{END, Feature, ObjectOffset, OverrideRun, Word, state},
    view::View,
};
use crate::values::rows::{Span, Table};

/// Maximum length of an answer in bytes. A longer answer is incomplete and must not be sent.
///
/// A snapshot stores a value once, however many features have it, so an answer can be longer than its snapshot.
pub const MAX_ANSWER: usize = 16 * 1024 * 1024;

/// Appends the array of all flags that the role sees, and returns the sum of their digests.
pub(crate) fn write_array(decisions: &Decisions<'_>, role: Role, out: &mut Vec<u8>) -> u64 {
    let view = decisions.view();
    let (body, bounds, digest) = prepared(view, 2 + role as u32);
    let (features, runs) = (view.features().len() as u32, view.override_runs());
    out.push(b'[');
    let mut array = Array { out, last: Last::Bracket, digest, visibility: Visibility::of(view, role) };
    let defaults = Defaults { body, bounds, end: offset(body, bounds, features) };
    let mut from = 0;
    for (start, block) in decisions.owners().blocks() {
        for (first, next, owner) in block.sequences() {
            let (first, next) = (start + first, start + next);
            if from < first {
                array.copy(view, &defaults.objects(from, first));
            }
            from = next;
            if let Owner::OverrideRun(number) = owner
                && let Some(objects) = runs.get(number).and_then(|run| Objects::of_run(view, &run, first, next))
            {
                array.copy(view, &objects);
                continue;
            }
            for feature in first..next {
                array.join(decisions, feature);
            }
        }
    }
    if from < features {
        array.copy(view, &defaults.objects(from, features));
    }
    array.close()
}

/// Appends the same array with flag overrides. Joins each object from its pieces.
#[cold]
pub(crate) fn write_overridden_array(
    decisions: &Decisions<'_>,
    overrides: &FlagOverrides,
    role: Role,
    out: &mut Vec<u8>,
) -> u64 {
    let view = decisions.view();
    let visibility = Visibility::of(view, role);
    let mut digest = 0_u64;
    out.push(b'[');
    for feature in 0..view.features().len() as u32 {
        let Some(mut outcome) = decisions.outcome(feature) else { continue };
        if let Some(own) = overrides.get(feature) {
            outcome = outcome.overridden(own);
        }
        if out.len() <= MAX_ANSWER && visibility.sees(&outcome.feature, outcome.enabled) {
            digest = digest.wrapping_add(outcome.digest(view));
            write_object(view, &outcome, out);
        }
    }
    if out.ends_with(b",") {
        out.pop();
    }
    out.push(b']');
    digest
}

/// Appends one flag object and returns its digest. Appends nothing and returns zero if the role does not see the
/// feature.
pub(crate) fn write_item(view: &View<'_>, outcome: Option<Outcome<'_>>, role: Role, out: &mut Vec<u8>) -> u64 {
    match outcome {
        Some(outcome) if outcome.is_visible(view, role) => {
            write_object(view, &outcome, out);
            out.pop(); // nothing follows the object
            outcome.digest(view)
        }
        _ => 0,
    }
}

/// Returns the answer without an identity, and the offset of each feature's object in it.
pub(crate) fn environment_answer<'a>(view: &View<'a>, role: Role) -> (&'a [u8], Table<'a, Word, 4>) {
    let (body, bounds, _) = prepared(view, role as u32);
    (view.bytes(body), bounds)
}

/// Returns a prepared answer: its byte range, the offset of each feature's object in it, and the sum of its digests.
fn prepared<'a>(view: &View<'a>, row: u32) -> (Span, Table<'a, Word, 4>, u64) {
    let answer = view.answers().get(row).unwrap_or_default();
    let bounds = view.bounds().range(answer.bounds, view.features().len() as u32 + 1);
    (answer.body, bounds, answer.digest)
}

/// Appends the object of a flag, and a comma.
#[inline(always)]
fn write_object(view: &View<'_>, outcome: &Outcome<'_>, out: &mut Vec<u8>) {
    out.extend_from_slice(view.bytes(outcome.feature.flagsmith_head));
    // Two constants, so that the compiler writes them without a copy of variable length.
    match outcome.enabled {
        true => out.extend_from_slice(state(true)),
        false => out.extend_from_slice(state(false)),
    }
    out.extend_from_slice(outcome.value);
    out.extend_from_slice(END);
    if outcome.has_experiment {
        out.truncate(out.len().saturating_sub(END.len()));
        outcome.write_experiment(view, out);
        out.extend_from_slice(END);
    }
}

/// The prepared array of all defaults.
struct Defaults<'a> {
    body: Span,
    bounds: Table<'a, Word, 4>,
    /// Offset of the end of the last object.
    end: u32,
}

/// Returns the offset of a feature's default in the blob.
#[inline(always)]
fn offset(body: Span, bounds: Table<'_, Word, 4>, feature: u32) -> u32 {
    body.start.saturating_add(bounds.get(feature).map_or(body.length, |word| word.word))
}

impl Defaults<'_> {
    /// Returns the objects of the defaults of consecutive features.
    #[inline(always)]
    fn objects(&self, first: u32, next: u32) -> Objects {
        let (start, end) = (offset(self.body, self.bounds, first), offset(self.body, self.bounds, next));
        let span = Span { start, length: end.saturating_sub(start) };
        Objects { span, difference: 0, last: if end == self.end { Last::Object } else { Last::Comma } }
    }
}

/// The objects of consecutive features, stored as one byte range.
struct Objects {
    /// Byte range in the blob.
    span: Span,
    /// Sum of their digests, minus the sum of the defaults' digests.
    difference: u64,
    /// End of the byte range.
    last: Last,
}

impl Objects {
    /// Returns the objects of some features of a run. `None` if they are not constant.
    #[inline(always)]
    fn of_run(view: &View<'_>, run: &OverrideRun, first: u32, next: u32) -> Option<Self> {
        let row = run.offsets.checked_add(first.wrapping_sub(run.feature))?;
        let object_offset = |row| view.object_offsets().get(row);
        let (start, end): (ObjectOffset, ObjectOffset) =
            (object_offset(row)?, object_offset(row.wrapping_add(next - first))?);
        let span = Span { start: start.at, length: end.at.saturating_sub(start.at) };
        Some(Self { span, difference: end.difference.wrapping_sub(start.difference), last: Last::Comma })
    }
}

/// An array under construction. `last` avoids reading the bytes that were copied last, which would wait for the copy.
struct Array<'a> {
    out: &'a mut Vec<u8>,
    last: Last,
    /// Sum of the digests, as if every flag that is not appended yet had its default.
    digest: u64,
    visibility: Visibility,
}

/// The current end of an array.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Last {
    Bracket,
    Comma,
    /// An object without a comma after it, as at the end of the prepared array.
    Object,
}

impl Array<'_> {
    /// Returns true if the array exceeds [`MAX_ANSWER`], so that nothing more is appended.
    #[inline(always)]
    fn is_too_long(&self) -> bool {
        self.out.len() > MAX_ANSWER
    }

    /// Appends stored objects.
    #[inline(always)]
    fn copy(&mut self, view: &View<'_>, objects: &Objects) {
        if self.is_too_long() {
            return;
        }
        if objects.span.length > 0 {
            self.go_on(objects.last).extend_from_slice(objects.span.of(view.blob));
        }
        self.digest = self.digest.wrapping_add(objects.difference);
    }

    /// Appends the object of a feature, joined from its pieces, if the role sees the feature.
    #[inline(never)]
    fn join(&mut self, decisions: &Decisions<'_>, number: u32) {
        let (view, visibility) = (decisions.view(), self.visibility);
        let Some(feature) = view.features().get(number) else { return };
        if self.is_too_long() {
            return;
        }
        let mut digest = 0;
        if let Some(outcome) = decisions.outcome(number)
            && visibility.sees(&feature, outcome.enabled)
        {
            write_object(view, &outcome, self.go_on(Last::Comma));
            digest = outcome.digest(view);
        }
        self.digest = self.digest.wrapping_add(digest).wrapping_sub(default_digest(view, visibility, &feature));
    }

    /// Returns the output for more objects, which will end with `last`.
    #[inline(always)]
    fn go_on(&mut self, last: Last) -> &mut Vec<u8> {
        if self.last == Last::Object {
            self.out.push(b',');
        }
        self.last = last;
        self.out
    }

    /// Ends the array, and returns the sum of its digests. The last object has no comma after it.
    fn close(self) -> u64 {
        if self.last == Last::Comma {
            self.out.pop();
        }
        self.out.push(b']');
        self.digest
    }
}

/// Returns the part of the sum of digests that a feature has by default.
fn default_digest(view: &View<'_>, visibility: Visibility, feature: &Feature) -> u64 {
    let default = view.contexts().get(feature.context).unwrap_or_default();
    if visibility.sees(feature, default.is_enabled()) { default.digest } else { 0 }
}
