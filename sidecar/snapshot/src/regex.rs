//! Regular expressions, searched in place: automata, and bounded backtracking for what no automaton can do.
pub mod automaton;
pub mod backtrack;
