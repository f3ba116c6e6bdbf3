//! Look-ups of features and slots by name, which a request pays for.

use crate::budget::StepBudget;
use crate::format::{
    layout::{Feature, TraitName, Word},
    view::View,
};
use crate::values::{
    hash::NameKey,
    rows::{Row, Span, Table},
};

/// Rows of a name table that a look-up visits per charged step. Most names are in their first row.
const FREE_PROBES: u32 = 4;

/// Maximum length in bytes of a name that is compared without a charge.
const SHORT: usize = 128;

impl<'a> View<'a> {
    /// Finds a feature by name.
    pub(crate) fn feature_named(&self, name: &[u8], budget: &StepBudget) -> Option<u32> {
        let is = |word: &Word| {
            self.features().get(word.word.wrapping_sub(1)).is_some_and(|row| self.is(row.name, name, budget))
        };
        Self::probe(self.feature_names(), NameKey::of(name), budget, |word| word.word, is)
    }

    /// Finds the first feature whose name is equal in any case.
    #[cold]
    pub(crate) fn feature_named_in_any_case(&self, name: &str) -> Option<u32> {
        let capitals = || name.chars().flat_map(char::to_uppercase);
        let is = |row: &Feature| match self.text(row.name) {
            other if other.is_ascii() && name.is_ascii() => other.eq_ignore_ascii_case(name),
            other => other.chars().flat_map(char::to_uppercase).eq(capitals()),
        };
        (0_u32..).zip(self.features().iter()).find_map(|(number, row)| is(&row).then_some(number))
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
