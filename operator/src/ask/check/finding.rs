//! Findings, and the report that shows them.

use std::fmt;

use remora_tools::counted;
use serde::Serialize;

use super::facts::Unread;
use crate::ask::answer::{Colour, CommandOutput, TextOutput};

/// Severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Level {
    /// No fault.
    Ok,
    /// Worth knowing, and no fault.
    Note,
    /// Could not be checked.
    Unknown,
    /// A fault that does not stop flags from being served.
    Warning,
    /// A fault that keeps pods from flags, or from current ones.
    Error,
}

/// One line of the report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    pub(super) level: Level,
    /// Object that the finding is about.
    pub(super) subject: String,
    pub(super) message: String,
    /// Remedy. Empty if none is needed.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) remedy: String,
}

impl Finding {
    pub(super) fn new(
        level: Level,
        subject: impl Into<String>,
        message: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self { level, subject: subject.into(), message: message.into(), remedy: remedy.into() }
    }

    pub(super) fn ok(subject: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(Level::Ok, subject, message, "")
    }
}

/// The finding that a part could not be checked.
pub(super) fn unread(unread: &Unread) -> Finding {
    Finding::new(Level::Unknown, unread.part, format!("not checked: {}", unread.failure), "")
}

/// All findings.
#[derive(Debug, Serialize)]
pub(in crate::ask) struct Report {
    /// The highest level of the findings.
    worst: Level,
    findings: Vec<Finding>,
}

impl Report {
    pub(super) fn new(findings: Vec<Finding>) -> Self {
        let worst = findings.iter().map(|finding| finding.level).max().unwrap_or(Level::Ok);
        Self { worst, findings }
    }
}

impl CommandOutput for Report {
    fn text(&self, output: &mut TextOutput) -> fmt::Result {
        for Finding { level, subject, message, remedy } in &self.findings {
            let (colour, word) = match level {
                Level::Ok => (Colour::Green, "ok     "),
                Level::Note => (Colour::Grey, "note   "),
                Level::Unknown => (Colour::Yellow, "unknown"),
                Level::Warning => (Colour::Yellow, "warning"),
                Level::Error => (Colour::Red, "error  "),
            };
            output.painted_line("", (colour, word), format!("  {subject}: {message}"))?;
            if !remedy.is_empty() {
                output.line(format!("         do: {remedy}"))?;
            }
        }
        let count = |level| self.findings.iter().filter(|finding| finding.level == level).count();
        output.line(format!(
            "{}, {}, {} not checked",
            counted(count(Level::Error), "error"),
            counted(count(Level::Warning), "warning"),
            count(Level::Unknown)
        ))
    }

    fn exit_code(&self) -> u8 {
        match self.worst {
            Level::Ok | Level::Note => 0,
            Level::Unknown => 3,
            Level::Warning | Level::Error => 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn worst_finding_decides_exit_code() {
        let code = |levels: &[Level]| {
            let findings = levels.iter().map(|level| Finding::new(*level, "a", "b", "c")).collect();
            Report::new(findings).exit_code()
        };
        assert_eq!(code(&[]), 0);
        assert_eq!(code(&[Level::Ok, Level::Note]), 0);
        assert_eq!(code(&[Level::Ok, Level::Unknown]), 3);
        assert_eq!(code(&[Level::Unknown, Level::Warning]), 1);
        assert_eq!(code(&[Level::Error, Level::Ok]), 1);
    }

    #[test]
    fn last_line_counts_findings() {
        let last = |levels: &[Level]| {
            let findings = levels.iter().map(|level| Finding::new(*level, "a", "b", "c")).collect();
            let (output_format, mut out) = (crate::ask::OutputFormat { json: false, colours: false }, Vec::new());
            output_format.write(&Report::new(findings), &mut out).unwrap();
            String::from_utf8(out).unwrap().lines().last().unwrap().to_owned()
        };
        assert_eq!(last(&[Level::Error, Level::Warning]), "1 error, 1 warning, 0 not checked");
        assert_eq!(last(&[Level::Error, Level::Error, Level::Unknown]), "2 errors, 0 warnings, 1 not checked");
    }
}
