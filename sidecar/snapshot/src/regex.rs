//! Regular expressions, executed in place: automata, and bounded backtracking for patterns that no automaton can
//! express.
pub mod automaton;
pub mod backtrack;
