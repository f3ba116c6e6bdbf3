//! History of a flag's answer: polled every 50 ms, recorded when it changes.

use std::io::Write as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio::time::MissedTickBehavior;

use super::first::Question;

const EVERY: Duration = Duration::from_millis(50);
/// Maximum number of recorded failures; the count of failures is not limited.
const MOST_TEXTS: usize = 100;

/// Answer that differs from the one before it.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Change {
    /// Time at which the application first received this answer.
    pub at: Timestamp,
    /// Body of the OFREP response.
    pub answer: serde_json::Value,
}

/// Request without an answer.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Failure {
    /// Time of the failure.
    pub at: Timestamp,
    /// Error message.
    pub error: String,
}

/// Results of all polls.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct History {
    /// Number of requests.
    pub asked: u64,
    /// Number of failed requests.
    pub failed: u64,
    /// First failures, at most `MOST_TEXTS`.
    pub failures: Vec<Failure>,
    /// Answers that differ from the one before, oldest first.
    pub changes: Vec<Change>,
    /// True if the last request failed.
    #[serde(default, skip)]
    failing: bool,
}

impl History {
    /// Records an outcome. Returns a log line if the outcome is worth one.
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

/// History that grows while its future is polled.
#[derive(Clone, Default)]
pub(super) struct Watch(Arc<Mutex<History>>);

impl Watch {
    pub(super) fn history(&self) -> History {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Polls until the future is dropped.
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
    fn history_keeps_changes_and_counts_failures() {
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
