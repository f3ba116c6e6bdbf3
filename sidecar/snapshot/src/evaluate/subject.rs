//! The subject of an evaluation: an identity and its traits, in buffers that later requests reuse.

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

/// A trait's value as sent.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum TraitValue<'a> {
    /// Removes the trait.
    Null,
    /// A boolean.
    Bool(bool),
    /// A JSON number without fraction and exponent, of any size.
    Integer(&'a str),
    /// Any other JSON number.
    Float(f64),
    /// A string. A string that looks like a number is compared as a number.
    String(&'a str),
}

/// The identity and the traits of one request, bound to the slots of one snapshot. Reuse it for the next request: after
/// the first few requests it does not allocate memory any more.
#[derive(Debug, Default)]
pub struct Subject {
    pub(crate) identified: bool,
    pub(crate) identifier: String,
    /// The identity's key, if it is not built from the client key and the identifier.
    pub(crate) own_key: Option<String>,
    /// Values by slot.
    values: Vec<Value>,
    /// The texts that values refer to.
    texts: String,
    /// Tokens of the values by slot, if they were computed.
    tokens: Vec<Option<Token>>,
    /// The text that was last read as a version, and the version.
    version: Option<(Stretch, Option<Plain>)>,
    /// Candidates of the index by block, if they were computed.
    pub(crate) candidates: Vec<Option<u64>>,
    /// The subject's place in the split of each split feature's default; NaN if it has not been computed.
    pub(crate) default_places: Vec<f64>,
    /// Buffers of the batch hashing.
    pub(crate) hashing: Option<Box<crate::values::percentage::Texts>>,
    /// Buffer for printing values that are no texts.
    pub(crate) scratch: String,
    /// Remaining budget of the request.
    pub(crate) budget: Budget,
    /// Memory of backtracking searches.
    pub(crate) room: crate::regex::backtrack::Room,
    pub(crate) choice: crate::evaluate::choose::Choice,
    pub(crate) resolution: crate::evaluate::resolve::Resolution,
}

/// A range of [`Subject::texts`]: the start in the lower half, the end in the upper half.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stretch(u64);

impl Stretch {
    #[inline(always)]
    fn range(self) -> std::ops::Range<usize> {
        (self.0 & u64::from(u32::MAX)) as usize..(self.0 >> 32) as usize
    }
}

/// A coerced value, as conditions compare it. Every variant is two integers: values stay in registers, and a read never
/// waits for two partial writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Value {
    Null,
    False,
    True,
    Integer(i64),
    /// An integer beyond `i64`: its digits, with a leading `-` if negative.
    BigInteger(Stretch),
    Float(Float),
    Text(Stretch),
}

/// A float, as its bits.
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
    /// Clears the request, keeps the allocated buffers, and resets the budget.
    pub fn clear(&mut self) {
        self.budget.reset();
        self.forget();
    }

    /// Clears the identity and its traits within a request. Charged steps stay charged.
    pub fn forget(&mut self) {
        self.identified = false;
        self.identifier.clear();
        self.own_key = None;
        self.values.clear();
        self.texts.clear();
        self.tokens.clear();
        self.version = None;
    }

    /// Number of steps of [`crate::MAX_STEPS`] that the last evaluation took, including the look-ups of traits. A
    /// number beyond the maximum means that the budget was exhausted.
    pub fn steps(&self) -> u64 {
        self.budget.taken()
    }

    /// Resizes the values to the slots of a snapshot, once per request.
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

    /// Returns the stored token of a slot's value.
    #[inline(always)]
    pub(crate) fn token_of(&self, slot: u16) -> Option<Token> {
        self.tokens.get(usize::from(slot)).copied().flatten()
    }

    /// Stores the token of a slot's value. Many sets contain the same few values, so each token is computed once per
    /// request.
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

    /// Coerces a string like Flagsmith's engine.
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

    /// Returns the bytes of a text, for comparisons of bytes.
    #[inline(always)]
    pub(crate) fn bytes(&self, stretch: Stretch) -> &[u8] {
        self.texts.as_bytes().get(stretch.range()).unwrap_or_default()
    }

    /// Returns the number of bytes to scan for a search in a value. For a value that is printed first, it is an
    /// equivalent charge.
    #[inline(always)]
    pub(crate) fn length_of(&self, value: Value) -> usize {
        const FLOAT: usize = 256;
        match value {
            Value::Text(text) | Value::BigInteger(text) => text.range().len(),
            Value::Float(_) => FLOAT,
            _ => 0,
        }
    }

    /// Reads a text as a version. The last result is cached, because many conditions read the same text.
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

    /// Returns the length of the identity's key in bytes.
    #[inline(always)]
    pub(crate) fn key_length(&self, view: &View<'_>) -> usize {
        match &self.own_key {
            Some(key) => key.len(),
            None => view.origin().client_key.length as usize + self.identifier.len(),
        }
    }

    /// Returns the identity's key in pieces. Splits hash it.
    pub(crate) fn key<'s>(&'s self, view: &View<'s>) -> [&'s [u8]; 3] {
        match &self.own_key {
            Some(key) => [key.as_bytes(), b"", b""],
            None => [view.bytes(view.origin().client_key), b"_", self.identifier.as_bytes()],
        }
    }

    /// Builds the key from the client key and the identifier. A text with `_` does not look like a number, so it is not
    /// coerced.
    fn made_key(&mut self, view: &View<'_>) -> Value {
        let start = self.texts.len();
        self.texts.extend([view.text(view.origin().client_key), "_", &self.identifier]);
        Value::Text(self.kept_from(start))
    }
}

impl View<'_> {
    /// Sets every derived slot, except slots whose trait was sent, and slots that depend on a flag, which are resolved
    /// when they are read. Call it once, after the traits are set.
    pub(crate) fn begin(&self, subject: &mut Subject) {
        let slots = self.slots();
        subject.fit(slots.len());
        for Word { word: index } in self.derived().iter() {
            let (Some(slot), Ok(number)) = (slots.get(index), u16::try_from(index)) else { continue };
            if subject.value(number) != Value::Null {
                continue;
            }
            if !subject.budget.scan(self.work_of(subject, slot)) {
                // The slot stays unset, and no further segment matches.
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

    /// Returns the number of bytes to read to derive a slot's value.
    fn work_of(&self, subject: &Subject, slot: Slot) -> usize {
        match slot.derivation {
            IDENTIFIER | IDENTITY_KEY if subject.identified => subject.key_length(self),
            CONSTANT => self.literals().get(slot.argument).map_or(0, |literal| literal.token.length as usize),
            _ => 0,
        }
    }
}

impl Subject {
    /// Returns the value of a JSON token that the writer made. Strings are coerced like traits.
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
