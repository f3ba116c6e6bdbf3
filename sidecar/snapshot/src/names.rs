//! Look-ups of features and slots by name, which a request pays for.

use crate::budget::{BYTES_A_STEP, StepBudget};
use crate::format::{
    layout::{Feature, TraitName, Word},
    view::View,
};
use crate::values::{
    hash::NameKey,
    rows::{Row, Span, Table},
};

/// Rows of a name table that a look-up visits per charged step. Most names are in their first row.
pub(crate) const FREE_PROBES: u32 = 4;

/// Maximum length in bytes of a name that is compared without a charge.
const SHORT: usize = 128;

/// Maximum number of characters of a feature's name in Flagsmith.
const LONGEST_NAME: usize = 2_000;

/// Maximum number of bytes of a character.
const MAX_BYTES: usize = 4;

/// Returns true if two names have the same capitals. Charges the compared characters.
fn has_capitals_of(name: &str, other: &str, budget: &StepBudget) -> bool {
    let mut compared = 0;
    let capitals = name.chars().flat_map(char::to_uppercase).inspect(|_| compared += 1);
    let is_equal = capitals.eq(other.chars().flat_map(char::to_uppercase));
    #[cfg(test)]
    crate::budget::work::add(compared);
    budget.spend_on_lookup(compared / BYTES_A_STEP) && is_equal
}

impl<'a> View<'a> {
    /// Finds a feature by name.
    pub(crate) fn feature_named(&self, name: &[u8], budget: &StepBudget) -> Option<u32> {
        let is = |word: &Word| {
            self.features().get(word.word.wrapping_sub(1)).is_some_and(|row| self.is(row.name, name, budget))
        };
        Self::probe(self.feature_names(), NameKey::of(name), budget, |word| word.word, is)
    }

    /// Finds the first feature whose name is equal in any case. Names that are longer than Flagsmith allows are not
    /// found. Every compared name is charged to the budget.
    #[cold]
    pub(crate) fn feature_named_in_any_case(&self, name: &str, budget: &StepBudget) -> Option<u32> {
        if name.len() > LONGEST_NAME && name.chars().count() > LONGEST_NAME {
            return None;
        }
        let is_ascii = name.is_ascii();
        for (number, Feature { name: other, .. }) in (0_u32..).zip(self.features().iter()) {
            let length = other.length as usize;
            if length > LONGEST_NAME * MAX_BYTES {
                continue;
            }
            if !budget.spend_on_lookup(1 + length / SHORT) {
                return None;
            }
            let bytes = self.bytes(other);
            if is_ascii && length == name.len() && bytes.eq_ignore_ascii_case(name.as_bytes()) {
                return Some(number);
            }
            // The capitals of a name beyond ASCII can be ASCII, and can have another length.
            if !(is_ascii && bytes.is_ascii()) && has_capitals_of(self.text(other), name, budget) {
                return Some(number);
            }
        }
        None
    }

    /// Finds a slot by name.
    #[inline(always)]
    pub(crate) fn slot_named(&self, name: &[u8], budget: &StepBudget) -> Option<u32> {
        if name.len() > NameKey::WHOLE {
            return self.slot_of_long_name(name, budget);
        }
        let name_key = NameKey::of(name);
        Self::probe(self.trait_names(), name_key, budget, |row| row.slot, |row| row.name_key() == name_key)
    }

    #[cold]
    fn slot_of_long_name(self, name: &[u8], budget: &StepBudget) -> Option<u32> {
        let name_key = NameKey::of(name);
        let is = |row: &TraitName| {
            row.name_key() == name_key
                && self.slots().get(row.slot.wrapping_sub(1)).is_some_and(|row| self.is(row.name, name, budget))
        };
        Self::probe(self.trait_names(), name_key, budget, |row| row.slot, is)
    }

    /// Returns true if the span is this name. Long names are charged to the budget.
    fn is(&self, span: Span, name: &[u8], budget: &StepBudget) -> bool {
        span.length as usize == name.len()
            && (name.len() <= SHORT || budget.spend_on_lookup(1 + name.len() / SHORT))
            && self.bytes(span) == name
    }

    /// Finds a row by linear probing. `of` returns the row's target plus 1, or zero for a free row. A full table
    /// without the name ends the search after one round, and long probing is charged to the budget.
    #[inline(always)]
    fn probe<R: Row<N>, const N: usize>(
        table: Table<'a, R, N>,
        name_key: NameKey,
        budget: &StepBudget,
        of: impl Fn(&R) -> u32,
        is: impl Fn(&R) -> bool,
    ) -> Option<u32> {
        let size = u32::try_from(table.len()).ok()?;
        let start = name_key.bucket();
        for step in 0..size {
            if step % FREE_PROBES == FREE_PROBES - 1 && !budget.spend_on_lookup(1) {
                return None;
            }
            let row = table.get(start.wrapping_add(step) & (size - 1))?;
            let found = of(&row).checked_sub(1)?;
            if is(&row) {
                return Some(found);
            }
        }
        None
    }
}
