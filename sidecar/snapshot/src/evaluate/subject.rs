//! Who asks: an identity and its traits, in buffers that are used again for the next request.

use crate::budget::{Budget, Undecided};
use crate::format::{
    layout::{CONSTANT, IDENTIFIER, IDENTITY_KEY, SAME_AS, Slot, Word},
    view::View,
};
use crate::values::{
    hash::Token,
    number::{Coerced, Integer, coerce},
    semver::{self, Plain},
};

/// A trait's value as it was sent.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum TraitValue<'a> {
    /// Takes the trait away.
    Null,
    /// A boolean.
    Bool(bool),
    /// A JSON number without point and exponent, of any size.
    Integer(&'a str),
    /// Any other JSON number.
    Float(f64),
    /// A string. One that looks like a number is compared as a number.
    String(&'a str),
}

/// The identity and the traits of one request, bound to the slots of one snapshot. Keep it for the next request: after
/// the first few, nothing is allocated any more.
#[derive(Debug, Default)]
pub struct Subject {
    pub(crate) identified: bool,
    pub(crate) identifier: String,
    /// The identity's key where it is not made of the client key and the identifier.
    pub(crate) own_key: Option<String>,
    /// By slot.
    values: Vec<Value>,
    /// The texts that values refer to.
    texts: String,
    /// What the values are among the members of sets, by slot, where that was asked for.
    tokens: Vec<Option<Token>>,
    /// The text that was last read as a version, and what it is.
    version: Option<(Stretch, Option<Plain>)>,
    /// The segments that are left by the index, by block, where that was asked for.
    pub(crate) candidates: Vec<Option<u64>>,
    /// By split feature: where the subject is in the split of its default, if that is known (else NaN).
    pub(crate) default_places: Vec<f64>,
    /// The rows of those splits that are not asked for yet.
    pub(crate) unasked: std::ops::Range<u32>,
    /// The flags that the subject may have and others of its cohort have not.
    pub(crate) gaps: Vec<crate::render::cohort::Gap>,
    /// By gap: where the subject is in its split.
    pub(crate) gap_places: Vec<f64>,
    /// Where its percentages are found out.
    pub(crate) hashing: Option<Box<crate::values::percentage::Texts>>,
    /// Where values that are no texts are printed.
    pub(crate) scratch: String,
    /// What the request may still take.
    pub(crate) budget: Budget,
    /// The memory of searches by backtracking.
    pub(crate) room: crate::regex::backtrack::Room,
    pub(crate) choice: crate::evaluate::choose::Choice,
    pub(crate) resolution: crate::evaluate::resolve::Resolution,
}

/// A run of [`Subject::texts`]: where it starts, and in the upper half where it ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stretch(u64);

impl Stretch {
    #[inline(always)]
    fn range(self) -> std::ops::Range<usize> {
        (self.0 & u64::from(u32::MAX)) as usize..(self.0 >> 32) as usize
    }
}

/// A value after coercion, by which conditions compare. Whichever it is, it is two integers: then it stays in registers,
/// and what was just written to memory by halves is not waited for to be read as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Value {
    Null,
    False,
    True,
    Integer(i64),
    /// Does not fit into an `i64`: its digits, behind its sign if it is below zero.
    BigInteger(Stretch),
    Float(Float),
    Text(Stretch),
}

/// A float, by its bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Float(u64);

impl Float {
    pub(crate) fn get(self) -> f64 {
        f64::from_bits(self.0)
    }
}

impl From<f64> for Value {
    fn from(float: f64) -> Self {
        Self::Float(Float(float.to_bits()))
    }
}

impl From<bool> for Value {
    fn from(bool: bool) -> Self {
        if bool { Self::True } else { Self::False }
    }
}

impl Subject {
    /// Forgets the request, and keeps the room. The next request has a whole budget.
    pub fn clear(&mut self) {
        self.budget.reset();
        self.forget();
    }

    /// Forgets the identity and its traits within a request: what they took of its budget stays taken.
    pub fn forget(&mut self) {
        self.identified = false;
        self.identifier.clear();
        self.own_key = None;
        self.values.clear();
        self.texts.clear();
        self.tokens.clear();
        self.version = None;
    }

    /// The steps that the last evaluation took of [`crate::MAX_STEPS`], the look-ups of traits included. More than there are
    /// says that the budget was used up.
    pub fn steps(&self) -> u64 {
        self.budget.taken()
    }

    /// Makes room for the slots of a snapshot, once a request.
    #[inline(always)]
    pub(crate) fn fit(&mut self, slots: usize) {
        if self.values.len() != slots {
            self.values.clear();
            self.values.resize(slots, Value::Null);
        }
    }

    pub(crate) fn set(&mut self, slot: u32, value: TraitValue<'_>) {
        let value = match value {
            TraitValue::Null => Value::Null,
            TraitValue::Bool(bool) => bool.into(),
            TraitValue::Integer(token) => Integer::parse(token).map_or(Value::Null, |integer| self.integer(integer)),
            TraitValue::Float(float) => float.into(),
            TraitValue::String(text) => self.coerced(text),
        };
        self.put(slot, value);
    }

    pub(crate) fn put(&mut self, slot: u32, value: Value) {
        if let Some(place) = self.values.get_mut(slot as usize) {
            *place = value;
        }
        if let Some(place) = self.tokens.get_mut(slot as usize) {
            *place = None;
        }
    }

    /// The token of a slot's value among the members of sets, if it was kept.
    #[inline(always)]
    pub(crate) fn token_of(&self, slot: u16) -> Option<Token> {
        self.tokens.get(usize::from(slot)).copied().flatten()
    }

    /// Many sets ask for the same few values: each is made a token once a request.
    pub(crate) fn keep_token(&mut self, slot: u16, token: Token) {
        if self.tokens.len() < self.values.len() {
            self.tokens.resize(self.values.len(), None);
        }
        if let Some(place) = self.tokens.get_mut(usize::from(slot)) {
            *place = Some(token);
        }
    }

    #[inline(always)]
    pub(crate) fn value(&self, slot: u16) -> Value {
        self.values.get(usize::from(slot)).copied().unwrap_or(Value::Null)
    }

    #[inline(always)]
    pub(crate) fn is_unset(&self, slot: u16) -> bool {
        self.values.get(usize::from(slot)).is_none_or(|value| matches!(value, Value::Null))
    }

    /// What Flagsmith's engine takes a string for.
    pub(crate) fn coerced(&mut self, text: &str) -> Value {
        match coerce(text) {
            Coerced::Integer(integer) => self.integer(integer),
            Coerced::Float(float) => float.into(),
            Coerced::Text => Value::Text(self.keep(text)),
        }
    }

    pub(crate) fn integer(&mut self, integer: Integer<'_>) -> Value {
        match integer {
            Integer::Small(small) => Value::Integer(small),
            Integer::Big { negative, digits } => self.big_integer(negative, digits),
        }
    }

    #[cold]
    fn big_integer(&mut self, negative: bool, digits: &str) -> Value {
        let start = self.texts.len();
        self.texts.push_str(if negative { "-" } else { "" });
        self.texts.push_str(digits);
        Value::BigInteger(self.kept_from(start))
    }

    fn keep(&mut self, text: &str) -> Stretch {
        let start = self.texts.len();
        self.texts.push_str(text);
        self.kept_from(start)
    }

    fn kept_from(&self, start: usize) -> Stretch {
        // A request is far below 4 GiB; if one were not, its texts would be empty rather than wrong.
        match (u32::try_from(start), u32::try_from(self.texts.len())) {
            (Ok(start), Ok(end)) => Stretch(u64::from(end) << 32 | u64::from(start)),
            _ => Stretch(0),
        }
    }

    #[inline(always)]
    pub(crate) fn text(&self, stretch: Stretch) -> &str {
        self.texts.get(stretch.range()).unwrap_or_default()
    }

    /// The same, where it is compared as bytes.
    #[inline(always)]
    pub(crate) fn bytes(&self, stretch: Stretch) -> &[u8] {
        self.texts.as_bytes().get(stretch.range()).unwrap_or_default()
    }

    /// How many bytes are looked through where a value is searched; where it is printed first, as many as that takes as
    /// long as.
    #[inline(always)]
    pub(crate) fn length_of(&self, value: Value) -> usize {
        const FLOAT: usize = 256;
        match value {
            Value::Text(text) | Value::BigInteger(text) => text.range().len(),
            Value::Float(_) => FLOAT,
            _ => 0,
        }
    }

    /// A text as a version; many conditions ask for the same one.
    pub(crate) fn version(&mut self, text: Stretch) -> Option<Plain> {
        match self.version {
            Some((read, version)) if read == text => version,
            _ => {
                let version = semver::plain(self.bytes(text));
                self.version = Some((text, version));
                version
            }
        }
    }

    /// How many bytes the identity's key has.
    #[inline(always)]
    pub(crate) fn key_length(&self, view: &View<'_>) -> usize {
        match &self.own_key {
            Some(key) => key.len(),
            None => view.origin().client_key.length as usize + self.identifier.len(),
        }
    }

    /// The identity's key, which is hashed for a split, in pieces.
    pub(crate) fn key<'s>(&'s self, view: &View<'s>) -> [&'s [u8]; 3] {
        match &self.own_key {
            Some(key) => [key.as_bytes(), b"", b""],
            None => [view.bytes(view.origin().client_key), b"_", self.identifier.as_bytes()],
        }
    }

    /// The key that is made of the client key and the identifier. What has a `_` looks like no number.
    fn made_key(&mut self, view: &View<'_>) -> Value {
        let start = self.texts.len();
        self.texts.extend([view.text(view.origin().client_key), "_", &self.identifier]);
        Value::Text(self.kept_from(start))
    }
}

impl View<'_> {
    /// Gives every derived slot its value, except where a trait of that name was sent, and except those that depend on
    /// a flag, which are resolved when they are read. Call it once, after the traits.
    pub(crate) fn begin(&self, subject: &mut Subject) {
        let slots = self.slots();
        subject.fit(slots.len());
        for Word { word: index } in self.derived().iter() {
            let (Some(slot), Ok(number)) = (slots.get(index), u16::try_from(index)) else { continue };
            if subject.value(number) != Value::Null {
                continue;
            }
            if !subject.budget.scan(self.work_of(subject, slot)) {
                // The slot stays unset, and no segment matches any more.
                subject.budget.note(Undecided::Others);
                return;
            }
            let value = match slot.derivation {
                IDENTIFIER if subject.identified => {
                    let identifier = std::mem::take(&mut subject.identifier);
                    let value = subject.coerced(&identifier);
                    subject.identifier = identifier;
                    value
                }
                IDENTITY_KEY if subject.identified => match subject.own_key.take() {
                    Some(key) => {
                        let value = subject.coerced(&key);
                        subject.own_key = Some(key);
                        value
                    }
                    None => subject.made_key(self),
                },
                SAME_AS => u16::try_from(slot.argument).map_or(Value::Null, |other| subject.value(other)),
                CONSTANT => self
                    .literals()
                    .get(slot.argument)
                    .map_or(Value::Null, |literal| subject.token(self.text(literal.token))),
                _ => Value::Null,
            };
            subject.put(index, value);
        }
    }

    /// How many bytes are read to derive a slot's value.
    fn work_of(&self, subject: &Subject, slot: Slot) -> usize {
        match slot.derivation {
            IDENTIFIER | IDENTITY_KEY if subject.identified => subject.key_length(self),
            CONSTANT => self.literals().get(slot.argument).map_or(0, |literal| literal.token.length as usize),
            _ => 0,
        }
    }
}

impl Subject {
    /// The value of a JSON token that the writer made; strings are coerced as traits are.
    pub(crate) fn token(&mut self, token: &str) -> Value {
        match token {
            "true" => Value::True,
            "false" => Value::False,
            _ if token.starts_with('"') => {
                let mut text = String::new();
                crate::values::json::read_string(token, &mut text).map_or(Value::Null, |()| self.coerced(&text))
            }
            _ => match Integer::parse(token) {
                Some(integer) => self.integer(integer),
                None => token.parse::<f64>().map_or(Value::Null, Value::from),
            },
        }
    }
}
