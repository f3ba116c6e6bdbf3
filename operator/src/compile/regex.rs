//! Compiler of regular expressions with the semantics of Python's `re.match`, to a form that sidecars search in place.
//!
//! ```text
//! pattern ──parse──> Node ──automaton──> a table, one step per byte
//!                         └─program────> a backtracking program with a step budget, for other patterns
//! ```
//!
//! All patterns of a document share one budget of counted steps ([`DOCUMENT_WORK`]). So the same document always
//! compiles to the same bytes, on any machine, and no pattern delays other documents.

mod automaton;
mod case;
mod class;
mod determinize;
mod escape;
mod minimize;
mod node;
mod parse;
mod program;
mod source;
mod work;

use std::collections::HashMap;
use std::sync::Arc;

use remora_snapshot::model::Pattern;
use work::{Spent, Work};

/// Maximum length of a pattern in bytes. Flagsmith itself allows 1,000 characters by default.
const LONGEST: usize = 8192;

/// Maximum number of steps for all patterns of a document: about one second. A pattern beyond it becomes a finding, and
/// its condition is false.
const DOCUMENT_WORK: u64 = 1 << 26;

/// Maximum number of steps for the automaton of one pattern: some hundredths of a second. A pattern beyond it becomes a
/// backtracking program.
const AUTOMATON_WORK: u64 = 1 << 21;

/// Steps of [`DOCUMENT_WORK`] that are reserved for backtracking programs.
const PROGRAMS_WORK: u64 = DOCUMENT_WORK / 4;

/// Maximum size in bytes of all automata of a document: half of an object. A pattern beyond it becomes a backtracking
/// program.
const AUTOMATA_BYTES: usize = 512 << 10;

/// Maximum size in bytes of all compiled patterns of a document. A pattern beyond it becomes a finding, and its
/// condition is false.
const PATTERNS_BYTES: usize = 4 << 20;

/// Compiled patterns of a document. Equal patterns are compiled once.
pub(super) struct Patterns {
    known: HashMap<String, Result<Pattern, String>>,
    work: Work,
    automata_bytes: usize,
    bytes: usize,
}

impl Default for Patterns {
    fn default() -> Self {
        Self { known: HashMap::new(), work: Work::new(DOCUMENT_WORK), automata_bytes: 0, bytes: 0 }
    }
}

impl Patterns {
    /// Compiles a pattern.
    ///
    /// # Errors
    /// The pattern is invalid, unsupported, or exceeds a limit. The message continues a sentence whose subject is the
    /// pattern.
    pub(super) fn compile(&mut self, pattern: &str) -> Result<Pattern, String> {
        if pattern.len() > LONGEST {
            return Err(format!("has {} bytes; at most {LONGEST} are compiled", pattern.len()));
        }
        if let Some(known) = self.known.get(pattern) {
            return known.clone();
        }
        let compiled = self.compile_new(pattern);
        self.known.insert(pattern.to_owned(), compiled.clone());
        compiled
    }

    fn compile_new(&mut self, pattern: &str) -> Result<Pattern, String> {
        let parsed = parse::parse(pattern, &mut self.work)?;
        let room = AUTOMATA_BYTES - self.automata_bytes;
        let automaton =
            self.work.lend(AUTOMATON_WORK, PROGRAMS_WORK, |work| automaton::build(&parsed.node, room, work));
        let (compiled, length) = match automaton {
            Some(automaton) => {
                self.automata_bytes += automaton.len();
                let automaton: Arc<[u8]> = automaton.into();
                let length = automaton.len();
                (Pattern::Automaton(automaton), length)
            }
            None => {
                let program: Arc<[u8]> = program::build(&parsed, &mut self.work)?.into();
                let length = program.len();
                (Pattern::Backtracking(program), length)
            }
        };
        if self.bytes + length > PATTERNS_BYTES {
            return Err(format!(
                "comes after others that take {} bytes when they are compiled, and all of a document may take {PATTERNS_BYTES}; use fewer or smaller patterns",
                self.bytes
            ));
        }
        self.bytes += length;
        Ok(compiled)
    }
}

impl From<Spent> for String {
    fn from(_: Spent) -> Self {
        format!(
            "takes more work than is left of the {DOCUMENT_WORK} steps for all patterns of a document; use fewer or smaller repetitions and sets"
        )
    }
}

#[cfg(test)]
mod tests;
