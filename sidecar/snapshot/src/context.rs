//! The evaluation context: the identity and the traits of one request, bound to the slots of one snapshot. It holds input
//! only; each stage of the evaluation has its own scratch memory.

use std::ops::Range;

use crate::budget::{BYTES_A_STEP, MAX_STEPS, StepBudget, Undecided};
use crate::format::{
    layout::{CONSTANT, FLAG, IDENTIFIER, IDENTITY_KEY, SAME_AS, Slot, Word},
    view::View,
};
use crate::values::{
    json,
    number::{Coerced, Integer, coerce},
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

/// The identity and the traits of one request.
#[derive(Debug, Default)]
pub(crate) struct EvaluationContext {
    /// True if the request has an identity. Without one, the environment decides which segments apply.
    pub(crate) is_identified: bool,
    /// True if the identity's override does not apply.
    pub(crate) is_transient: bool,
    identifier: String,
    /// The identity's key, if it is not built from the client key and the identifier.
    own_key: Option<String>,
    /// Values by slot.
    values: Vec<Value>,
    /// The texts that values refer to.
    texts: String,
}

/// A range of the context's texts: the start in the lower half, the end in the upper half.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StrRange(u64);

impl StrRange {
    #[inline(always)]
    fn range(self) -> Range<usize> {
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
    BigInteger(StrRange),
    Float(Float),
    Text(StrRange),
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

impl EvaluationContext {
    /// Clears the identity and its traits, and keeps the allocated buffers.
    pub(crate) fn clear(&mut self) {
        self.is_identified = false;
        self.is_transient = false;
        self.identifier.clear();
        self.own_key = None;
        self.values.clear();
        self.texts.clear();
    }

    /// Sets the identifier.
    pub(crate) fn identify(&mut self, identifier: &str) {
        self.is_identified = true;
        self.identifier.clear();
        self.identifier.push_str(identifier);
    }

    /// Sets the key that is hashed instead of the client key and the identifier.
    pub(crate) fn set_key(&mut self, key: &str) {
        self.own_key = Some(key.to_owned());
    }

    /// Returns the identifier.
    pub(crate) fn identifier(&self) -> &str {
        &self.identifier
    }

    /// Resizes the values to the slots of a snapshot, and sets its constants, once per request.
    #[inline(always)]
    pub(crate) fn fit(&mut self, slots: usize, derivations: &Derivations) {
        if self.values.len() != slots {
            self.values.clear();
            self.values.resize(slots, Value::Null);
            if !derivations.constants.is_empty() {
                self.set_constants(derivations);
            }
        }
    }

    #[cold]
    fn set_constants(&mut self, derivations: &Derivations) {
        // The constants refer to ranges of their texts, which therefore come first. No value refers to a text yet.
        self.texts.clear();
        self.texts.push_str(&derivations.texts);
        for (slot, value) in &derivations.constants {
            self.put(*slot, *value);
        }
    }

    /// Number of slots.
    pub(crate) fn slots(&self) -> usize {
        self.values.len()
    }

    /// Sets the trait of a slot.
    pub(crate) fn set(&mut self, slot: u32, value: TraitValue<'_>, derivations: &Derivations) {
        let value = match value {
            TraitValue::Null => derivations.constant(slot),
            TraitValue::Bool(bool) => bool.into(),
            TraitValue::Integer(token) => match Integer::parse(token) {
                Some(integer) => self.integer(integer),
                None => derivations.constant(slot),
            },
            TraitValue::Float(float) => float.into(),
            TraitValue::String(text) => self.coerced(text),
        };
        self.put(slot, value);
    }

    fn put(&mut self, slot: u32, value: Value) {
        if let Some(place) = self.values.get_mut(slot as usize) {
            *place = value;
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

    fn keep(&mut self, text: &str) -> StrRange {
        let start = self.texts.len();
        self.texts.push_str(text);
        self.kept_from(start)
    }

    fn kept_from(&self, start: usize) -> StrRange {
        // A request is far below 4 GiB; if one were not, its texts would be empty rather than wrong.
        match (u32::try_from(start), u32::try_from(self.texts.len())) {
            (Ok(start), Ok(end)) => StrRange(u64::from(end) << 32 | u64::from(start)),
            _ => StrRange(0),
        }
    }

    #[inline(always)]
    pub(crate) fn text(&self, range: StrRange) -> &str {
        self.texts.get(range.range()).unwrap_or_default()
    }

    /// Returns the bytes of a text, for comparisons of bytes.
    #[inline(always)]
    pub(crate) fn bytes(&self, range: StrRange) -> &[u8] {
        self.texts.as_bytes().get(range.range()).unwrap_or_default()
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

    /// Sets every derived slot, except slots whose trait was sent, and slots that depend on a flag, which are resolved
    /// when they are read. Call it once, after the traits are set.
    pub(crate) fn derive(&mut self, view: &View<'_>, derivations: &Derivations, budget: &StepBudget) {
        let slots = view.slots();
        self.fit(slots.len(), derivations);
        if !budget.spend(derivations.steps) {
            budget.note(Undecided::Others);
            return;
        }
        for Word { word: index } in view.derived().iter() {
            let (Some(slot), Ok(number)) = (slots.get(index), u16::try_from(index)) else { continue };
            if self.value(number) != Value::Null {
                continue;
            }
            if !budget.scan(self.work_of(view, slot)) {
                // The slot stays unset, and no further segment matches.
                budget.note(Undecided::Others);
                return;
            }
            let value = match slot.derivation {
                IDENTIFIER if self.is_identified => {
                    let identifier = std::mem::take(&mut self.identifier);
                    let value = self.coerced(&identifier);
                    self.identifier = identifier;
                    value
                }
                IDENTITY_KEY if self.is_identified => match self.own_key.take() {
                    Some(key) => {
                        let value = self.coerced(&key);
                        self.own_key = Some(key);
                        value
                    }
                    None => self.made_key(view),
                },
                SAME_AS => u16::try_from(slot.argument).map_or(Value::Null, |other| self.value(other)),
                _ => Value::Null,
            };
            self.put(index, value);
        }
    }

    /// Returns the number of bytes to read to derive a slot's value.
    fn work_of(&self, view: &View<'_>, slot: Slot) -> usize {
        match slot.derivation {
            IDENTIFIER | IDENTITY_KEY if self.is_identified => self.key_length(view),
            _ => 0,
        }
    }

    /// Returns the value of a JSON token that the writer made. Strings are coerced like traits.
    pub(crate) fn token(&mut self, token: &str) -> Value {
        match token {
            "true" => Value::True,
            "false" => Value::False,
            _ if token.starts_with('"') => {
                let mut text = String::new();
                json::read_string(token, &mut text).map_or(Value::Null, |()| self.coerced(&text))
            }
            _ => match Integer::parse(token) {
                Some(integer) => self.integer(integer),
                None => token.parse::<f64>().map_or(Value::Null, Value::from),
            },
        }
    }
}

/// The derivations of a snapshot's slots, as far as they depend on no request. Computed once, when the snapshot is read.
#[derive(Debug, Default)]
pub(crate) struct Derivations {
    /// Slots that have a constant without a trait of their name, in ascending order, and the constants.
    constants: Vec<(u32, Value)>,
    /// The texts that the constants refer to.
    texts: String,
    /// Charge for the constants of one evaluation.
    steps: usize,
    /// True if a slot reads a flag.
    pub(crate) reads_flags: bool,
}

impl Derivations {
    /// Reads the derivations of validated tables.
    pub(crate) fn of(view: &View<'_>) -> Self {
        let (slots, mut found, mut context) = (view.slots(), Self::default(), EvaluationContext::default());
        for Word { word: number } in view.derived().iter() {
            let Some(slot) = slots.get(number) else { continue };
            found.reads_flags |= slot.derivation == FLAG;
            if slot.derivation == CONSTANT
                && found.steps <= MAX_STEPS as usize
                && let Some(literal) = view.literals().get(slot.argument)
            {
                found.steps += 1 + literal.token.length as usize / BYTES_A_STEP;
                found.constants.push((number, context.token(view.text(literal.token))));
            }
        }
        // Constants beyond the budget are not needed: with them, no segment matches.
        if found.steps > MAX_STEPS as usize {
            found.constants.clear();
            return found;
        }
        found.texts = context.texts;
        found
    }

    /// Returns the value of a slot without a trait of its name.
    fn constant(&self, slot: u32) -> Value {
        let found = self.constants.binary_search_by_key(&slot, |(slot, _)| *slot).ok();
        found.and_then(|at| self.constants.get(at)).map_or(Value::Null, |(_, value)| *value)
    }
}
