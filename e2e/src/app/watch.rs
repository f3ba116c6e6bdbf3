//! The history of an answer: asked every 50 ms, kept when it changed.

use std::io::Write as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio::time::MissedTickBehavior;

use super::first::Question;

const EVERY: Duration = Duration::from_millis(50);
/// Of the failures' texts; the count goes on.
const MOST_TEXTS: usize = 100;

/// An answer that differs from the one before it.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Change {
    /// When it was seen first.
    pub at: Timestamp,
    /// OFREP's body.
    pub answer: serde_json::Value,
}

/// A request that got no answer.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Failure {
    /// When.
    pub at: Timestamp,
    /// What happened.
    pub error: String,
}

/// All that the polling saw.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct History {
    /// How many requests were made.
    pub asked: u64,
    /// How many of them failed.
    pub failed: u64,
    /// The first of those that failed.
    pub failures: Vec<Failure>,
    /// The answers, each when it was new.
    pub changes: Vec<Change>,
    /// Whether the last request failed.
    #[serde(default, skip)]
    failing: bool,
}

impl History {
    /// Takes an outcome up; returns what is worth a line in the log.
    fn note(&mut self, at: Timestamp, outcome: anyhow::Result<serde_json::Value>) -> Option<String> {
        self.asked += 1;
        match outcome {
            Ok(answer) => {
                self.failing = false;
                let changed = self.changes.last().is_none_or(|last| last.answer != answer);
                let line = (changed && !self.changes.is_empty()).then(|| format!("answer changed: {answer}"));
                if changed {
                    self.changes.push(Change { at, answer });
                }
                line
            }
            Err(error) => {
                self.failed += 1;
                let error = format!("{error:#}");
                let line = (!std::mem::replace(&mut self.failing, true)).then(|| format!("no answer: {error}"));
                if self.failures.len() < MOST_TEXTS {
                    self.failures.push(Failure { at, error });
                }
                line
            }
        }
    }
}

/// A history that grows as long as its future is polled.
#[derive(Clone, Default)]
pub(super) struct Watch(Arc<Mutex<History>>);

impl Watch {
    pub(super) fn history(&self) -> History {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Asks until it is dropped.
    pub(super) async fn follow(&self, question: &Question) {
        let mut ticks = tokio::time::interval(EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let outcome = question.ofrep().await.and_then(|reply| reply.json());
            let line = self.0.lock().unwrap_or_else(PoisonError::into_inner).note(Timestamp::now(), outcome);
            if let Some(line) = line {
                let _nobody_listens = writeln!(std::io::stdout(), "{line}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_changes_are_kept_and_every_failure_counts() {
        let mut history = History::default();
        for value in [1, 1, 2, 2, 1] {
            history.note(Timestamp::UNIX_EPOCH, Ok(json!(value)));
        }
        for _ in 0..200 {
            history.note(Timestamp::UNIX_EPOCH, Err(anyhow::anyhow!("refused")));
        }
        assert_eq!(
            history.changes.iter().map(|change| change.answer.clone()).collect::<Vec<_>>(),
            [json!(1), json!(2), json!(1)]
        );
        assert_eq!((history.asked, history.failed, history.failures.len()), (205, 200, MOST_TEXTS));
    }
}
