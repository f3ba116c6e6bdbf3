//! Regular expressions as Python's `re.match` means them, compiled to something that is searched in place.
//!
//! ```text
//! pattern ──parse──> Node ──automaton──> a table, one step a byte
//!                         └─program────> a backtracking program with a budget, for what no automaton can do
//! ```

mod automaton;
mod case;
mod class;
mod escape;
mod node;
mod parse;
mod program;

use remora_snapshot::model::Pattern;

/// The longest pattern: Flagsmith itself allows 1,000 characters by default.
const LONGEST: usize = 8192;

/// Compiles a pattern.
///
/// # Errors
/// What is wrong with the pattern, as the rest of a sentence about it.
pub(super) fn compile(pattern: &str) -> Result<Pattern, String> {
    if pattern.len() > LONGEST {
        return Err(format!("has {} bytes; at most {LONGEST} are compiled", pattern.len()));
    }
    let parsed = parse::parse(pattern)?;
    if let Some(automaton) = automaton::build(&parsed.node) {
        return Ok(Pattern::Automaton(automaton));
    }
    program::build(&parsed).map(Pattern::Backtracking)
}

#[cfg(test)]
mod tests;
