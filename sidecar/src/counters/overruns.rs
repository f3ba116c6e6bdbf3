//! Evaluations that exceed their budget. The request is answered, counted, and logged at most once per interval.

use std::fmt;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use remora_snapshot::Overrun;

use crate::clock::since_epoch;
use crate::log::warning;

/// Shortest interval in seconds between two log lines about one environment.
const LOG_INTERVAL: u64 = 60;

/// Largest length of a segment's name in a log line, in characters.
const MAX_NAME: usize = 80;

/// Counter of the overruns of one environment.
#[derive(Debug, Default)]
pub(crate) struct Overruns {
    count: AtomicU64,
    /// Second since 1970 at which an overrun was last logged, or zero.
    logged: AtomicU64,
}

impl Overruns {
    /// Number of answers with undecided segments.
    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Counts an overrun, and logs it unless another one was logged within [`LOG_INTERVAL`].
    #[cold]
    pub(crate) fn report(&self, environment: &str, overrun: Overrun<'_>) {
        let count = self.count.fetch_add(1, Ordering::Relaxed) + 1;
        if self.is_due(since_epoch(SystemTime::now()).as_secs()) {
            warning!("{}", Line { environment, overrun, count });
        }
    }

    /// True if a line is due at this second. Only one caller gets true.
    fn is_due(&self, now: u64) -> bool {
        let logged = self.logged.load(Ordering::Relaxed);
        // A clock that was set back does not silence the log.
        let due = logged == 0 || now.abs_diff(logged) >= LOG_INTERVAL;
        due && self.logged.compare_exchange(logged, now.max(1), Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
}

/// A log line.
struct Line<'a> {
    environment: &'a str,
    overrun: Overrun<'a>,
    count: u64,
}

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "environment {:?}: a request used up its budget of steps, ", self.environment)?;
        match self.overrun.segment {
            Some(name) => {
                f.write_str("so segment \"")?;
                name.chars().take(MAX_NAME).flat_map(char::escape_debug).try_for_each(|c| f.write_char(c))?;
                f.write_str(if name.chars().nth(MAX_NAME).is_some() { "…\"" } else { "\"" })?;
                f.write_str(" stayed undecided and did not match: ")?;
                f.write_str(
                    "use fewer or shorter conditions in it, and no regular expression with nested repetitions",
                )?;
            }
            None => {
                f.write_str("so segments stayed undecided and did not match: ")?;
                f.write_str("send shorter traits, or use fewer conditions")?;
            }
        }
        write!(f, " ({} such requests since the start)", self.count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_is_due_once_in_an_interval() {
        let overruns = Overruns::default();
        assert!(overruns.is_due(1000));
        assert!(!overruns.is_due(1000));
        assert!(!overruns.is_due(1000 + LOG_INTERVAL - 1));
        assert!(overruns.is_due(1000 + LOG_INTERVAL));
        assert!(!overruns.is_due(1000 + 1), "a clock that was set back by less than the interval");
        assert!(overruns.is_due(1), "a clock that was set back by more");
        assert!(!overruns.is_due(2));
    }

    #[test]
    fn line_escapes_and_bounds_the_name_of_a_segment() {
        let line = |segment| Line { environment: "shop", overrun: Overrun { segment }, count: 3 }.to_string();
        let long = format!("a\"\n\u{1b}[31m{}", "x".repeat(1000));
        let text = line(Some(&long));
        assert!(text.starts_with("environment \"shop\": a request used up its budget of steps"), "{text}");
        assert!(text.contains("segment \"a\\\"\\n\\u{1b}[31mxxx"), "{text}");
        assert!(!text.chars().any(char::is_control) && text.len() < 400, "{text}");
        assert!(text.ends_with("(3 such requests since the start)"), "{text}");
        assert!(line(None).contains("so segments stayed undecided"));
    }
}
