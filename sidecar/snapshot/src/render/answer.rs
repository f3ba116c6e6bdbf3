//! What a feature is for a subject, and Flagsmith's way of writing it: pieces that were prepared, joined.

use std::ops::Range;

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
    /// JSON.
    pub(crate) value: &'a [u8],
    pub(crate) split: Bucket<'a>,
    /// See [`digest_of`].
    pub(crate) digest: u64,
    /// The segment that decided, by its row.
    pub(crate) segment: Option<u32>,
    cyclic: bool,
    /// There is a split, but nobody to be in it.
    unsplit: bool,
}

/// Where in a split the subject is.
pub(crate) enum Bucket<'a> {
    /// There is none, or no identity.
    None,
    /// In none of the variants.
    Control { percentage: f64 },
    /// In a variant.
    Variant { percentage: f64, key: &'a [u8], weight: &'a [u8] },
}

/// The longest answer, in bytes. One that is longer was not put together to its end, and must not be sent.
///
/// A value is in a snapshot once, however many features have it, so that an answer can be longer than its snapshot.
pub const MAX_ANSWER: usize = 16 * 1024 * 1024;

/// How many variants one step passes.
const VARIANTS_A_STEP: usize = 8;

/// `"control"`, as JSON.
const CONTROL: &[u8] = b"\"control\"";

impl<'a> Outcome<'a> {
    /// The result of a feature that was decided. Inlined, as most of it is not read where flags are only written.
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

    /// How many bytes the longest of the texts has that a condition can read of it, at most.
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

    /// May a request with this role see it?
    pub(crate) fn is_visible(&self, view: &View<'_>, role: Role) -> bool {
        view.visibility(role).sees(&self.feature, self.enabled)
    }

    /// Would an identity decide between variants, and is there none?
    pub(crate) fn needs_identity(&self) -> bool {
        self.enabled && self.unsplit
    }

    /// The variant's name as JSON.
    pub(crate) fn variant_json(&self) -> Option<&'a [u8]> {
        match self.split {
            Bucket::None => None,
            Bucket::Control { .. } => Some(CONTROL),
            Bucket::Variant { key, .. } => (!key.is_empty()).then_some(key),
        }
    }

    /// The reason as Flagsmith's engine 11 words it.
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

    /// The reason as OpenFeature knows it.
    pub(crate) fn openfeature_reason(&self) -> &'static str {
        match (self.enabled, self.cyclic, &self.split, self.winner) {
            (_, true, ..) => "ERROR",
            (false, ..) => "DISABLED",
            (_, _, Bucket::Variant { .. }, _) => "SPLIT",
            (_, _, _, Winner::Segment(_) | Winner::Individual(_)) => "TARGETING_MATCH",
            _ => "STATIC",
        }
    }

    /// Appends Flagsmith's flag object, and a comma.
    fn write(&self, view: &View<'_>, out: &mut Vec<u8>) {
        write_object(view.bytes(self.feature.flagsmith_head), self.enabled, self.value, out);
    }
}

/// Appends Flagsmith's object of a feature that has this head, and a comma.
#[inline(always)]
pub(crate) fn write_object(head: &[u8], enabled: bool, value: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(head);
    // Constants each, so that they are written and not copied.
    match enabled {
        true => out.extend_from_slice(state(true)),
        false => out.extend_from_slice(state(false)),
    }
    out.extend_from_slice(value);
    out.extend_from_slice(END);
}

/// Where in a split the subject is, and the value that it has there. Not inlined: splits are few.
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
    write_array(evaluation, subject, role, out)
}

/// The same, once everything is chosen.
pub(crate) fn write_array(evaluation: &Evaluation<'_>, subject: &Subject, role: Role, out: &mut Vec<u8>) -> u64 {
    out.push(b'[');
    let mut array = Array { out, last: Last::Bracket };
    let (_, _, mut digest) = evaluation.view.default_answer(role);
    each_part(&evaluation.view, subject, role, |part| {
        if array.is_too_long() {
            return;
        }
        digest = digest.wrapping_add(match part {
            Part::Objects(objects) => objects.write(&evaluation.view, &mut array),
            Part::One(number) => {
                write_outcome(evaluation, subject, role, number, evaluation.chosen(subject, number), &mut array)
            }
        });
    });
    array.close();
    array.out.push(b']');
    digest
}

/// A part of the array of all flags.
pub(crate) enum Part<'a> {
    /// Of features in a row, there in one piece.
    Objects(Objects<'a>),
    /// Of a feature whose object is not there in one piece, or may be hidden.
    One(u32),
}

/// The objects of features in a row, in one piece.
pub(crate) struct Objects<'a> {
    features: Range<u32>,
    /// Where they are in the blob.
    span: Span,
    /// By how much their digests differ from those of the defaults.
    difference: u64,
    last: Last,
    edges: Edges<'a>,
}

/// Where objects begin.
#[derive(Clone, Copy)]
enum Edges<'a> {
    /// Those of the defaults, by feature.
    Default { body: Span, bounds: Table<'a, Word, 4> },
    /// Those of a run, from the row of the first one on.
    Run { edges: Table<'a, Edge, 12>, row: u32 },
}

/// Tells what the array of all flags is made of, once everything is chosen.
#[inline(always)]
pub(crate) fn each_part<'a>(view: &View<'a>, subject: &Subject, role: Role, mut take: impl FnMut(Part<'a>)) {
    let (body, bounds, _) = view.default_answer(role);
    let default = Edges::Default { body, bounds };
    let (runs, edges, features) = (view.runs(), view.edges(), view.features().len() as u32);
    let end = default.at(0, features).at;
    let defaults = |from, to| {
        let span = default.span(from, to);
        let last = if span.start + span.length == end { Last::Object } else { Last::Comma };
        Part::Objects(Objects { features: from..to, span, difference: 0, last, edges: default })
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

impl Edges<'_> {
    /// Where the object of a feature begins; `first` is the first one of the part.
    #[inline(always)]
    fn at(&self, first: u32, feature: u32) -> Edge {
        match self {
            Self::Default { body, bounds } => {
                let bound = bounds.get(feature).map_or(body.length, |word| word.word);
                Edge { at: body.start.saturating_add(bound), difference: 0 }
            }
            Self::Run { edges, row } => edges.get(row.wrapping_add(feature.wrapping_sub(first))).unwrap_or_default(),
        }
    }

    #[inline(always)]
    fn span(&self, first: u32, next: u32) -> Span {
        let start = self.at(first, first).at;
        Span { start, length: self.at(first, next).at.saturating_sub(start) }
    }
}

impl Objects<'_> {
    /// Appends them; by how much their digests differ from those of the defaults.
    #[inline(always)]
    pub(crate) fn write(&self, view: &View<'_>, array: &mut Array<'_>) -> u64 {
        if self.span.length > 0 {
            array.go_on(self.last).extend_from_slice(self.span.of(view.blob));
        }
        self.difference
    }

    /// Where each of them begins, and by how much the digests of those before it differ from those of the defaults: from
    /// the first one on. A comma is always before that.
    pub(crate) fn edges(&self) -> impl Iterator<Item = Edge> {
        let first = self.features.start;
        let start = self.edges.at(first, first);
        // What is hidden behind the last object begins behind the comma that is put there if something follows.
        let comma = u32::from(self.last == Last::Object && self.span.length > 0);
        self.features.clone().map(move |feature| {
            let Edge { at, difference } = self.edges.at(first, feature);
            let at = at.saturating_sub(start.at);
            Edge {
                at: if at == self.span.length { at.saturating_add(comma) } else { at },
                difference: difference.wrapping_sub(start.difference),
            }
        })
    }
}

/// An array, as it is put together. What was copied last is not read again: that would wait for the copy.
pub(crate) struct Array<'a> {
    pub(crate) out: &'a mut Vec<u8>,
    pub(crate) last: Last,
}

/// What an array ends with so far.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Last {
    Bracket,
    Comma,
    /// The last one of the prepared array has no comma behind it.
    Object,
}

impl Array<'_> {
    /// Whether nothing more is to be appended.
    #[inline(always)]
    pub(crate) fn is_too_long(&self) -> bool {
        self.out.len() > MAX_ANSWER
    }

    /// Where more objects go, which are to end like this.
    #[inline(always)]
    pub(crate) fn go_on(&mut self, last: Last) -> &mut Vec<u8> {
        self.separate();
        self.last = last;
        self.out
    }

    /// Puts a comma behind the last object if there is none.
    #[inline(always)]
    pub(crate) fn separate(&mut self) {
        if self.last == Last::Object {
            self.out.push(b',');
            self.last = Last::Comma;
        }
    }

    /// Takes away the comma that nothing follows.
    pub(crate) fn close(&mut self) {
        if self.last == Last::Comma {
            self.out.pop();
        }
        self.last = Last::Object;
    }
}

impl Run {
    /// The objects of some features in it. `None` where they are not known.
    #[inline(always)]
    fn part<'a>(&self, edges: Table<'a, Edge, 12>, first: u32, next: u32) -> Option<Objects<'a>> {
        let row = self.edges.checked_add(first.wrapping_sub(self.feature))?;
        let (start, end) = (edges.get(row)?, edges.get(row.wrapping_add(next - first))?);
        let span = Span { start: start.at, length: end.at.saturating_sub(start.at) };
        let difference = end.difference.wrapping_sub(start.difference);
        let edges = Edges::Run { edges, row };
        Some(Objects { features: first..next, span, difference, last: Last::Comma, edges })
    }
}

/// Appends a flag that is not there in one piece, or may be hidden, if the role sees it; by how much its digest differs.
#[inline(never)]
pub(crate) fn write_outcome(
    evaluation: &Evaluation<'_>,
    subject: &Subject,
    role: Role,
    number: u32,
    winner: Winner,
    array: &mut Array<'_>,
) -> u64 {
    let view = &evaluation.view;
    let visibility = view.visibility(role);
    let Some(feature) = view.features().get(number) else { return 0 };
    let before = view.default_digest(visibility, &feature);
    match Outcome::of(evaluation, subject, number, winner) {
        Some(outcome) if visibility.sees(&feature, outcome.enabled) => {
            outcome.write(view, array.go_on(Last::Comma));
            outcome.digest.wrapping_sub(before)
        }
        _ => 0_u64.wrapping_sub(before),
    }
}

/// Appends one flag object, of what decides the feature, and returns its digest; nothing and zero where the role does not
/// see it.
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
            out.pop(); // nothing follows
            outcome.digest
        }
        _ => 0,
    }
}

impl<'a> Evaluation<'a> {
    /// What decides one feature.
    pub(crate) fn winner(&self, subject: &mut Subject, feature: u32) -> Winner {
        if crate::evaluate::resolve::is_needed(self) {
            // What a cycle of flags gives depends on the order of all segments.
            self.choose(subject);
            return self.chosen(subject, feature);
        }
        self.view.features().get(feature).map_or(Winner::Default, |row| self.decide(subject, &row))
    }
}

/// What a role sees of an environment.
#[derive(Clone, Copy)]
pub(crate) struct Visibility {
    /// Features with any of these flags are hidden.
    hidden: u32,
    /// Disabled ones are.
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

    /// The variant of a split that is at this place. `None`: no variant is.
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

    /// What a feature that is not overridden adds to the sum of digests.
    pub(crate) fn default_digest(&self, visibility: Visibility, feature: &Feature) -> u64 {
        let default = self.contexts().get(feature.context).unwrap_or_default();
        if visibility.sees(feature, default.is_enabled()) { default.digest } else { 0 }
    }

    /// The prepared array of an evaluation in which nothing is overridden, and the sum of its digests.
    pub(crate) fn default_answer(&self, role: Role) -> (Span, Table<'a, Word, 4>, u64) {
        self.answer(2 + role as u32)
    }

    /// The answer without an identity.
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
