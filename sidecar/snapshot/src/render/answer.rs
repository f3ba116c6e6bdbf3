//! Results of features, and their rendering in Flagsmith's dialect by joining prepared pieces.

use crate::budget::Undecided;
use crate::evaluate::{
    choose::Owner,
    evaluation::{Evaluation, Winner},
    role::Role,
    subject::Subject,
};
use crate::format::{
    layout::{
        Context, ENABLED, END, Edge, Feature, HIDE_DISABLED, LENGTH_MASK, Run, SERVER_ONLY, Split, TARGETED, UNSERVED,
        Variant, Word, state,
    },
    view::View,
};
use crate::values::{
    hash::digest_of,
    percentage::{UNDECIDED, percentage},
    rows::{Span, Table},
};

/// The result of a feature.
pub(crate) struct Outcome<'a> {
    pub(crate) feature: Feature,
    pub(crate) winner: Winner,
    pub(crate) enabled: bool,
    /// Value as JSON.
    pub(crate) value: &'a [u8],
    pub(crate) split: Bucket<'a>,
    /// See [`digest_of`].
    pub(crate) digest: u64,
    /// Row of the segment that decided.
    pub(crate) segment: Option<u32>,
    cyclic: bool,
    /// True if the context has a split and the request has no identity.
    unsplit: bool,
}

/// The subject's place in a split.
pub(crate) enum Bucket<'a> {
    /// The context has no split, or the request has no identity.
    None,
    /// No variant: the control value.
    Control { percentage: f64 },
    /// A variant.
    Variant { percentage: f64, key: &'a [u8], weight: &'a [u8] },
}

/// Maximum length of an answer in bytes. A longer answer is incomplete and must not be sent.
///
/// A snapshot stores a value once, however many features have it, so an answer can be longer than its snapshot.
pub const MAX_ANSWER: usize = 16 * 1024 * 1024;

/// Number of variants per charged step.
const VARIANTS_A_STEP: usize = 8;

/// `"control"` as JSON.
const CONTROL: &[u8] = b"\"control\"";

impl<'a> Outcome<'a> {
    /// Returns the result of a decided feature. Inlined, because callers that only render flags read few of its fields.
    #[inline(always)]
    pub(crate) fn of(evaluation: &Evaluation<'a>, subject: &Subject, number: u32, winner: Winner) -> Option<Self> {
        let view = evaluation.view;
        let feature = view.features().get(number)?;
        let mut outcome = Self {
            feature,
            winner,
            enabled: false,
            value: b"null",
            split: Bucket::None,
            digest: 0,
            segment: None,
            cyclic: subject.resolution.is_cyclic(number),
            unsplit: false,
        };
        let context = match winner {
            Winner::Default => view.contexts().get(feature.context)?,
            Winner::Segment(rank) => {
                let ranked = evaluation.ranked(&feature).get(u32::from(rank))?;
                outcome.segment = Some(ranked.segment);
                view.contexts().get(ranked.context)?
            }
            Winner::Individual(row) => {
                let individual = evaluation.individual?;
                let item = individual.items.get(row)?;
                outcome.enabled = item.value_length & ENABLED != 0;
                outcome.value = Span { start: item.value, length: item.value_length & LENGTH_MASK }.of(individual.blob);
                outcome.digest = digest_of(feature.id, outcome.enabled, outcome.value);
                return Some(outcome);
            }
        };
        outcome.enabled = context.is_enabled();
        outcome.value = context.value(view.blob);
        outcome.digest = context.digest;
        if context.split != 0 {
            outcome.unsplit = !subject.identified;
            if subject.identified {
                let place = if winner == Winner::Default { evaluation.place_in_split(subject, number) } else { None };
                let (bucket, chosen) = bucket(&view, subject, context, place);
                outcome.split = bucket;
                (outcome.value, outcome.digest) = chosen.unwrap_or((outcome.value, outcome.digest));
            }
        }
        Some(outcome)
    }

    /// Returns an upper bound for the length in bytes of any text that a condition can read from the result.
    pub(crate) fn length(&self, view: &View<'_>) -> usize {
        let segment = self.segment.and_then(|segment| view.segments().get(segment));
        let bucket = match self.split {
            Bucket::Variant { key, weight, .. } => key.len() + weight.len(),
            Bucket::None | Bucket::Control { .. } => 0,
        };
        self.value.len()
            + bucket
            + self.feature.name.length as usize
            + segment.map_or(0, |row| row.name.length as usize)
    }

    /// Returns true if a request with this role may see the feature.
    pub(crate) fn is_visible(&self, view: &View<'_>, role: Role) -> bool {
        view.visibility(role).sees(&self.feature, self.enabled)
    }

    /// Returns true if an identity is needed to choose between variants, and the request has none.
    pub(crate) fn needs_identity(&self) -> bool {
        self.enabled && self.unsplit
    }

    /// Returns the variant's name as JSON.
    pub(crate) fn variant_json(&self) -> Option<&'a [u8]> {
        match self.split {
            Bucket::None => None,
            Bucket::Control { .. } => Some(CONTROL),
            Bucket::Variant { key, .. } => (!key.is_empty()).then_some(key),
        }
    }

    /// Returns the reason in the words of Flagsmith's engine 11.
    pub(crate) fn reason(&self, view: &View<'_>) -> String {
        if self.cyclic {
            return "ERROR; code=CIRCULAR_DEPENDENCY".to_owned();
        }
        if let Bucket::Variant { weight, .. } = self.split {
            return format!("SPLIT; weight={}", String::from_utf8_lossy(weight));
        }
        match self.winner {
            Winner::Individual(_) => "TARGETING_MATCH; segment=identity_overrides".to_owned(),
            Winner::Segment(_) => {
                let name = self
                    .segment
                    .and_then(|segment| view.segments().get(segment))
                    .map_or("", |segment| view.text(segment.name));
                format!("TARGETING_MATCH; segment={name}")
            }
            Winner::Default if self.feature.flags & TARGETED != 0 => "DEFAULT".to_owned(),
            Winner::Default => "STATIC".to_owned(),
        }
    }

    /// Returns the reason of OpenFeature.
    pub(crate) fn openfeature_reason(&self) -> &'static str {
        match (self.enabled, self.cyclic, &self.split, self.winner) {
            (_, true, ..) => "ERROR",
            (false, ..) => "DISABLED",
            (_, _, Bucket::Variant { .. }, _) => "SPLIT",
            (_, _, _, Winner::Segment(_) | Winner::Individual(_)) => "TARGETING_MATCH",
            _ => "STATIC",
        }
    }

    /// Appends Flagsmith's flag object and a comma.
    fn write(&self, view: &View<'_>, out: &mut Vec<u8>) {
        write_object(view.bytes(self.feature.flagsmith_head), self.enabled, self.value, out);
    }
}

/// Appends Flagsmith's object of a feature with this head, and a comma.
#[inline(always)]
fn write_object(head: &[u8], enabled: bool, value: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(head);
    // Two constants, so that the compiler writes them without a copy of variable length.
    match enabled {
        true => out.extend_from_slice(state(true)),
        false => out.extend_from_slice(state(false)),
    }
    out.extend_from_slice(value);
    out.extend_from_slice(END);
}

/// Returns the subject's place in a split, and the value and digest there. Not inlined, because splits are few.
#[inline(never)]
fn bucket<'a>(
    view: &View<'a>,
    subject: &Subject,
    context: Context,
    place: Option<f64>,
) -> (Bucket<'a>, Option<(&'a [u8], u64)>) {
    let Some(split) = view.split(context) else { return (Bucket::None, None) };
    let percentage = place.unwrap_or_else(|| {
        if !subject.budget.hash(split.seed, subject.key_length(view)) {
            subject.budget.note(Undecided::Others);
            return UNDECIDED;
        }
        let [a, b, c] = subject.key(view);
        percentage(&[view.bytes(split.seed), b",", a, b, c])
    });
    match view.variant(subject, split, percentage) {
        None => (Bucket::Control { percentage }, None),
        Some(Variant { value, key, weight, digest, .. }) => {
            let bucket = Bucket::Variant { percentage, key: view.bytes(key), weight: view.bytes(weight) };
            (bucket, Some((view.bytes(value), digest)))
        }
    }
}

/// Appends the array of all flags, and returns the sum of their digests.
pub(crate) fn write_flags(evaluation: &Evaluation<'_>, subject: &mut Subject, role: Role, out: &mut Vec<u8>) -> u64 {
    evaluation.choose(subject);
    out.push(b'[');
    let mut array = Array { out, last: Last::Bracket };
    let (_, _, mut digest) = evaluation.view.default_answer(role);
    each_part(&evaluation.view, subject, role, |part| {
        if array.is_too_long() {
            return;
        }
        digest = digest.wrapping_add(match part {
            Part::Objects(objects) => objects.write(&evaluation.view, &mut array),
            Part::One(number) => write_outcome(evaluation, subject, role, number, &mut array),
        });
    });
    array.close();
    digest
}

/// A part of the array of all flags.
enum Part {
    /// Consecutive features that are stored as one byte range.
    Objects(Objects),
    /// A feature whose object is not stored as one byte range, or may be hidden.
    One(u32),
}

/// The objects of consecutive features, stored as one byte range.
struct Objects {
    /// Byte range in the blob.
    span: Span,
    /// Sum of their digests, minus the sum of the defaults' digests.
    difference: u64,
    last: Last,
}

/// Passes the parts of the array of all flags to `take`, after all features are decided.
#[inline(always)]
fn each_part(view: &View<'_>, subject: &Subject, role: Role, mut take: impl FnMut(Part)) {
    let (body, bounds, _) = view.default_answer(role);
    let (runs, edges, features) = (view.runs(), view.edges(), view.features().len() as u32);
    let offset = |feature| body.start.saturating_add(bounds.get(feature).map_or(body.length, |word| word.word));
    let end = offset(features);
    let defaults = |from, to| {
        let (start, next) = (offset(from), offset(to));
        let span = Span { start, length: next.saturating_sub(start) };
        Part::Objects(Objects { span, difference: 0, last: if next == end { Last::Object } else { Last::Comma } })
    };
    let mut from = 0;
    for (block, decided) in subject.choice.blocks() {
        for (first, next, owner) in decided.owned() {
            let (first, next) = (block + first, block + next);
            if from < first {
                take(defaults(from, first));
            }
            from = next;
            if let Owner::Run(number) = owner
                && let Some(objects) = runs.get(number).and_then(|run| run.part(edges, first, next))
            {
                take(Part::Objects(objects));
                continue;
            }
            for number in first..next {
                take(Part::One(number));
            }
        }
    }
    if from < features {
        take(defaults(from, features));
    }
}

impl Objects {
    /// Appends the objects, and returns the sum of their digests minus the defaults'.
    #[inline(always)]
    fn write(&self, view: &View<'_>, array: &mut Array<'_>) -> u64 {
        if self.span.length > 0 {
            array.go_on(self.last).extend_from_slice(self.span.of(view.blob));
        }
        self.difference
    }
}

/// An array under construction. `last` avoids reading the bytes that were copied last, which would wait for the copy.
struct Array<'a> {
    out: &'a mut Vec<u8>,
    last: Last,
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

    /// Returns the output for more objects, which will end with `last`.
    #[inline(always)]
    fn go_on(&mut self, last: Last) -> &mut Vec<u8> {
        if self.last == Last::Object {
            self.out.push(b',');
        }
        self.last = last;
        self.out
    }

    /// Ends the array: the last object has no comma after it.
    fn close(self) {
        if self.last == Last::Comma {
            self.out.pop();
        }
        self.out.push(b']');
    }
}

impl Run {
    /// Returns the objects of some features of the run. `None` if they are not constant.
    #[inline(always)]
    fn part(&self, edges: Table<'_, Edge, 12>, first: u32, next: u32) -> Option<Objects> {
        let row = self.edges.checked_add(first.wrapping_sub(self.feature))?;
        let (start, end) = (edges.get(row)?, edges.get(row.wrapping_add(next - first))?);
        let span = Span { start: start.at, length: end.at.saturating_sub(start.at) };
        let difference = end.difference.wrapping_sub(start.difference);
        Some(Objects { span, difference, last: Last::Comma })
    }
}

/// Appends a flag that is not stored as one byte range or may be hidden, if the role sees it. Returns its digest minus
/// the default's digest.
#[inline(never)]
fn write_outcome(
    evaluation: &Evaluation<'_>,
    subject: &Subject,
    role: Role,
    number: u32,
    array: &mut Array<'_>,
) -> u64 {
    let view = &evaluation.view;
    let visibility = view.visibility(role);
    let Some(feature) = view.features().get(number) else { return 0 };
    let before = view.default_digest(visibility, &feature);
    match Outcome::of(evaluation, subject, number, evaluation.chosen(subject, number)) {
        Some(outcome) if visibility.sees(&feature, outcome.enabled) => {
            outcome.write(view, array.go_on(Last::Comma));
            outcome.digest.wrapping_sub(before)
        }
        _ => 0_u64.wrapping_sub(before),
    }
}

/// Appends one flag object and returns its digest. Appends nothing and returns zero if the role does not see the
/// feature.
pub(crate) fn write_item(
    evaluation: &Evaluation<'_>,
    subject: &mut Subject,
    role: Role,
    feature: u32,
    winner: Winner,
    out: &mut Vec<u8>,
) -> u64 {
    match Outcome::of(evaluation, subject, feature, winner) {
        Some(outcome) if outcome.is_visible(&evaluation.view, role) => {
            outcome.write(&evaluation.view, out);
            out.pop(); // nothing follows the object
            outcome.digest
        }
        _ => 0,
    }
}

impl<'a> Evaluation<'a> {
    /// Decides one feature.
    pub(crate) fn winner(&self, subject: &mut Subject, feature: u32) -> Winner {
        if crate::evaluate::resolve::is_needed(self) {
            // The result of a cycle of flags depends on the order of all segments, so all features are decided.
            self.choose(subject);
            return self.chosen(subject, feature);
        }
        self.view.features().get(feature).map_or(Winner::Default, |row| self.decide(subject, &row))
    }
}

/// Visibility of features for a role.
#[derive(Clone, Copy)]
pub(crate) struct Visibility {
    /// Features with any of these flags are hidden.
    hidden: u32,
    /// True if disabled features are hidden.
    hides_disabled: bool,
}

impl Visibility {
    pub(crate) fn sees(self, feature: &Feature, enabled: bool) -> bool {
        feature.flags & self.hidden == 0 && (enabled || !self.hides_disabled)
    }
}

impl<'a> View<'a> {
    pub(crate) fn visibility(&self, role: Role) -> Visibility {
        let hidden = if role == Role::Server { UNSERVED } else { UNSERVED | SERVER_ONLY };
        Visibility { hidden, hides_disabled: self.origin().flags & HIDE_DISABLED != 0 }
    }

    /// Returns the variant of a split at this place. `None` stands for the control value.
    pub(crate) fn variant(&self, subject: &Subject, split: Split, place: f64) -> Option<Variant> {
        if !subject.budget.spend(split.length as usize / VARIANTS_A_STEP) {
            subject.budget.note(Undecided::Others);
            return None;
        }
        let mut start = 0.0;
        self.variants().range(split.variants, split.length).iter().find(|variant| {
            let begin = std::mem::replace(&mut start, variant.limit);
            begin <= place && place < variant.limit
        })
    }

    /// Returns what a feature adds to the sum of digests by default.
    pub(crate) fn default_digest(&self, visibility: Visibility, feature: &Feature) -> u64 {
        let default = self.contexts().get(feature.context).unwrap_or_default();
        if visibility.sees(feature, default.is_enabled()) { default.digest } else { 0 }
    }

    /// Returns the prepared array of all defaults, and the sum of its digests.
    pub(crate) fn default_answer(&self, role: Role) -> (Span, Table<'a, Word, 4>, u64) {
        self.answer(2 + role as u32)
    }

    /// Returns the answer without an identity.
    pub(crate) fn environment_answer(&self, role: Role) -> (&'a [u8], Table<'a, Word, 4>) {
        let (body, bounds, _) = self.answer(role as u32);
        (self.bytes(body), bounds)
    }

    fn answer(&self, row: u32) -> (Span, Table<'a, Word, 4>, u64) {
        let answer = self.answers().get(row).unwrap_or_default();
        let bounds = self.bounds().range(answer.bounds, self.features().len() as u32 + 1);
        (answer.body, bounds, answer.digest)
    }
}
