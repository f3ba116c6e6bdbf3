//! Room for the large parts of the views of a namespace, which its environments share. Pure.

use std::collections::{BTreeSet, HashMap};

/// Sizes of the large parts of the views of a namespace, by environment.
#[derive(Debug, Default)]
pub(super) struct LargeParts {
    sum: usize,
    environments: HashMap<String, usize>,
    /// Environments by size, so that the largest one is found among very many.
    by_size: BTreeSet<(usize, String)>,
}

impl LargeParts {
    /// Returns the size of the large parts of all environments in bytes.
    pub(super) fn sum(&self) -> usize {
        self.sum
    }

    /// Returns the size of the large parts of an environment in bytes.
    pub(super) fn of(&self, environment: &str) -> usize {
        self.environments.get(environment).copied().unwrap_or_default()
    }

    /// Returns the environment whose large parts are the largest, and their size in bytes.
    pub(super) fn largest(&self) -> Option<(&str, usize)> {
        self.by_size.last().map(|(size, environment)| (environment.as_str(), *size))
    }

    pub(super) fn add(&mut self, environment: &str, bytes: usize) {
        self.set(environment, self.of(environment).saturating_add(bytes));
    }

    pub(super) fn release(&mut self, environment: &str, bytes: usize) {
        self.set(environment, self.of(environment).saturating_sub(bytes));
    }

    fn set(&mut self, environment: &str, bytes: usize) {
        let before = self.environments.remove(environment).unwrap_or_default();
        self.by_size.remove(&(before, environment.to_owned()));
        self.sum = self.sum.saturating_sub(before).saturating_add(bytes);
        if bytes > 0 {
            self.environments.insert(environment.to_owned(), bytes);
            self.by_size.insert((bytes, environment.to_owned()));
        }
    }
}
