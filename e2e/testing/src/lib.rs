//! Parts that the tests of all crates share: the report of tests that did not run ([`not_run`]), the recorded answers,
//! and the comparison of generated texts with their files ([`assert_generated`]).

mod generated;
mod requirements;

pub use generated::{REWRITE, assert_generated};
pub use requirements::{LIST, RECORDED_ANSWERS, all_answers, committed_answers, most_answers, not_run};
