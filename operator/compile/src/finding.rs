//! Findings: problems of a document that do not prevent its compilation.

use std::collections::BTreeSet;
use std::fmt;

use crate::document::printable;

/// Maximum number of findings kept of a document. A document of 1 MB can have sixty thousand.
pub const MOST_FINDINGS: usize = 1_000;

/// Maximum number of characters of a message.
const LONGEST_MESSAGE: usize = 1_000;

/// One problem, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// Object of the finding: `segment "beta users" (12)`.
    pub subject: String,
    /// Problem and what to write instead.
    pub message: String,
}

impl Finding {
    /// Creates a finding. Escapes control characters of the document, and cuts a long message.
    pub(super) fn new(subject: &str, message: &str) -> Self {
        Self { subject: printable(subject, LONGEST_MESSAGE), message: printable(message, LONGEST_MESSAGE) }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.subject, self.message)
    }
}

/// The findings of a document: distinct, in order, and the first [`MOST_FINDINGS`] of them.
#[derive(Default)]
pub(super) struct Findings {
    kept: BTreeSet<Finding>,
    has_more: bool,
}

impl Findings {
    pub(super) fn add(&mut self, subject: &str, message: &str) {
        let finding = Finding::new(subject, message);
        let is_behind = self.kept.len() == MOST_FINDINGS && self.kept.last().is_some_and(|last| finding > *last);
        if is_behind {
            self.has_more = true;
        } else if self.kept.insert(finding) && self.kept.len() > MOST_FINDINGS {
            self.kept.pop_last();
            self.has_more = true;
        }
    }

    /// Returns the findings, with a last one that says so if more were found.
    pub(super) fn into_list(self) -> Vec<Finding> {
        let more = self.has_more.then(|| {
            Finding::new(
                "findings",
                &format!("only the first {MOST_FINDINGS} are listed; correct these to see the others"),
            )
        });
        self.kept.into_iter().chain(more).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_beyond_limit_are_dropped_in_any_order() {
        let list = |numbers: &mut dyn Iterator<Item = usize>| {
            let mut findings = Findings::default();
            numbers.for_each(|number| findings.add("s", &format!("{number:05}")));
            findings.into_list()
        };
        let (up, down) = (list(&mut (0..3_000)), list(&mut (0..3_000).rev()));
        assert_eq!((up.len(), &up), (MOST_FINDINGS + 1, &down));
        assert_eq!(up[MOST_FINDINGS - 1].message, "00999");
        assert_eq!(list(&mut [1, 1].into_iter()).len(), 1);
    }

    #[test]
    fn finding_messages_are_escaped_and_cut() {
        let finding = Finding::new("a\nb", &"\u{1b}".repeat(100_000));
        assert!(finding.subject == "a\\nb" && finding.message.len() < 10_000 && !finding.message.contains('\u{1b}'));
    }
}
