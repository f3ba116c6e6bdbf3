//! Goals: numbers of a run, and the largest value that each may have.

use std::fmt::Write as _;

/// Goal of a run.
struct Goal {
    what: String,
    most: f64,
    measured: f64,
}

/// Goals of a run, in the order of the phases.
#[derive(Default)]
pub(crate) struct Goals(Vec<Goal>);

impl Goals {
    /// Adds a goal: `measured` is at most `most`.
    pub(crate) fn at_most(&mut self, what: &str, most: f64, measured: f64) {
        self.0.push(Goal { what: what.to_owned(), most, measured });
    }

    /// Returns the goals that the run missed.
    pub(crate) fn missed(&self) -> Vec<&str> {
        self.0.iter().filter(|goal| goal.measured > goal.most).map(|goal| goal.what.as_str()).collect()
    }

    /// Returns a table of the goals.
    pub(crate) fn table(&self) -> String {
        let mut text = "| goal | at most | measured | |\n|---|---|---|---|\n".to_owned();
        for Goal { what, most, measured } in &self.0 {
            let verdict = if measured > most { "missed" } else { "met" };
            let _ = writeln!(text, "| {what} | {most:.2} | {measured:.2} | {verdict} |");
        }
        text
    }
}
