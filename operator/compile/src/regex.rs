//! Compiler of regular expressions with the semantics of Python's `re.match`, to a form that sidecars search in place.
//!
//! ```text
//! pattern ──parse──> Node ──automaton──> a table, one step per byte
//!                         └─program────> a backtracking program with a step budget, for other patterns
//! ```
//!
//! All patterns of a document share one budget of counted steps ([`DOCUMENT_STEPS`]). So the same document always
//! compiles to the same bytes, on any machine, and no pattern delays other documents.

mod automaton;
mod case;
mod class;
mod cost;
mod determinize;
mod error;
mod escape;
mod minimize;
mod node;
mod parse;
mod program;
mod shorthand;
mod source;
mod step_budget;

use std::collections::HashMap;
use std::sync::Arc;

pub(super) use cost::TEXT as LONGEST_TEXT;
use error::PatternError;
use remora_snapshot::model::Pattern;
use step_budget::StepBudget;

/// Maximum length of a pattern in bytes. Flagsmith itself allows 1,000 characters by default.
const LONGEST: usize = 8192;

/// Maximum number of steps for all patterns of a document: about one second. A pattern beyond it becomes a finding, and
/// its condition is false.
const DOCUMENT_STEPS: u64 = 1 << 26;

/// Maximum number of steps for the automaton of one pattern: some hundredths of a second. A pattern beyond it becomes a
/// backtracking program.
const AUTOMATON_STEPS: u64 = 1 << 21;

/// Maximum number of steps for the bound of one pattern's searches. A pattern beyond it counts as one without a bound.
const COST_STEPS: u64 = 1 << 20;

/// Steps of [`DOCUMENT_STEPS`] that are reserved for backtracking programs.
const PROGRAMS_STEPS: u64 = DOCUMENT_STEPS / 4;

/// Maximum size in bytes of all automata of a document: half of an object. A pattern beyond it becomes a backtracking
/// program.
const AUTOMATA_BYTES: usize = 512 << 10;

/// Maximum size in bytes of all compiled patterns of a document. A pattern beyond it becomes a finding, and its
/// condition is false.
const PATTERNS_BYTES: usize = 4 << 20;

/// Compiled patterns of a document. Equal patterns are compiled once.
pub(super) struct Patterns {
    known: HashMap<String, Result<Pattern, PatternError>>,
    /// Most steps of a search ([`cost::most_steps`]), for patterns that are searched by backtracking.
    costs: HashMap<String, f64>,
    budget: StepBudget,
    automata_bytes: usize,
    bytes: usize,
}

impl Default for Patterns {
    fn default() -> Self {
        Self {
            known: HashMap::new(),
            costs: HashMap::new(),
            budget: StepBudget::new(DOCUMENT_STEPS),
            automata_bytes: 0,
            bytes: 0,
        }
    }
}

impl Patterns {
    /// Compiles a pattern.
    ///
    /// # Errors
    /// The pattern is invalid, unsupported, or exceeds a limit.
    pub(super) fn compile(&mut self, pattern: &str) -> Result<Pattern, PatternError> {
        if pattern.len() > LONGEST {
            return Err(format!("has {} bytes; write one of at most {LONGEST}", pattern.len()).into());
        }
        if let Some(known) = self.known.get(pattern) {
            return known.clone();
        }
        let compiled = self.compile_new(pattern);
        self.known.insert(pattern.to_owned(), compiled.clone());
        compiled
    }

    /// Returns the most steps that a search for a compiled pattern takes, in a text of [`LONGEST_TEXT`] characters. Zero if
    /// the pattern is an automaton, infinite if a search can exceed a limit.
    pub(super) fn most_steps(&self, pattern: &str) -> f64 {
        self.costs.get(pattern).copied().unwrap_or_default()
    }

    fn compile_new(&mut self, pattern: &str) -> Result<Pattern, PatternError> {
        let parsed = parse::parse(pattern, &mut self.budget)?;
        let bytes_left = AUTOMATA_BYTES.saturating_sub(self.automata_bytes);
        let automaton = self
            .budget
            .with_part(AUTOMATON_STEPS, PROGRAMS_STEPS, |budget| automaton::build(&parsed.node, bytes_left, budget));
        let (compiled, length) = match automaton {
            Some(automaton) => {
                self.automata_bytes += automaton.len();
                let automaton: Arc<[u8]> = automaton.into();
                let length = automaton.len();
                (Pattern::Automaton(automaton), length)
            }
            None => {
                let program: Arc<[u8]> = program::build(&parsed, &mut self.budget)?.into();
                let length = program.len();
                let cost =
                    self.budget.with_part(COST_STEPS, PROGRAMS_STEPS, |budget| cost::most_steps(&parsed.node, budget));
                self.costs.insert(pattern.to_owned(), cost.unwrap_or(f64::INFINITY));
                (Pattern::Backtracking(program), length)
            }
        };
        if self.bytes + length > PATTERNS_BYTES {
            return Err(format!(
                "does not fit into the {PATTERNS_BYTES} bytes for all compiled patterns of a document, of which {} are used; use fewer or smaller patterns",
                self.bytes
            )
            .into());
        }
        self.bytes += length;
        Ok(compiled)
    }
}

#[cfg(test)]
mod tests;
