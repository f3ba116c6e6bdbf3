//! Reports tests that do not run because the machine lacks what they need. Tests install nothing: they look for a
//! program, a right or recorded answers, call [`not_run`] if it is missing, and return.
//!
//! The test framework counts such a test as passed, and hides its output. Therefore the report goes to the process's
//! standard error, which the framework does not capture, and to the file that [`LIST`] names: `make` prints that file
//! after the last test. In continuous integration nothing may be missing, so the test fails there.

use std::ffi::{OsStr, OsString};
use std::fs::OpenOptions;
use std::io::Write as _;
use std::panic::Location;
use std::path::PathBuf;

/// Variable that names the list of tests that did not run.
pub const LIST: &str = "REMORA_NOT_RUN";
/// Variable that names the directory of all recorded answers. The tests always compare the answers in
/// [`committed_answers`], and these in addition.
pub const RECORDED_ANSWERS: &str = "REMORA_CONFORMANCE_DIR";
/// Value of [`RECORDED_ANSWERS`] on a machine that cannot have all recorded answers, because they are not public. Their tests
/// are then reported, and do not fail in continuous integration.
const NOT_PUBLIC: &str = "none";

/// Reports that the calling test does not run. `missing` names what the machine lacks, and the remedy.
///
/// # Panics
/// The variable `CI` is `true`: a test of the project must not be left out there.
#[track_caller]
pub fn not_run(missing: &str) {
    let line = report(missing);
    assert!(!is_continuous_integration(std::env::var_os("CI").as_deref()), "{line}in CI every test has to run");
}

/// Reports that the calling test does not run, and returns the report.
#[track_caller]
fn report(missing: &str) -> String {
    let thread = std::thread::current();
    // The test framework names the thread after the test, except if it runs one test at a time.
    let test = thread.name().filter(|name| *name != "main").unwrap_or("a test");
    let line = format!("NOT RUN: {} ({test}) needs {missing}\n", Location::caller().file());
    // One write per line, so that lines of concurrent tests do not mix.
    let _a_closed_stream_hides_only_this_line = std::io::stderr().write_all(line.as_bytes());
    if let Some(path) = std::env::var_os(LIST) {
        let list = OpenOptions::new().create(true).append(true).open(&path);
        let written = list.and_then(|mut list| list.write_all(line.as_bytes()));
        assert!(written.is_ok(), "{LIST} is {}, which cannot be written: {written:?}", path.display());
    }
    line
}

fn is_continuous_integration(variable: Option<&OsStr>) -> bool {
    variable.is_some_and(|value| value == "true")
}

/// Directory of the recorded answers that are part of the project.
pub fn committed_answers() -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "..", "recorded"].iter().collect()
}

/// Place of all recorded answers, out of the value of [`RECORDED_ANSWERS`].
#[derive(Debug, PartialEq, Eq)]
enum Answers {
    At(PathBuf),
    NotPublic,
    Unknown,
}

fn answers(variable: Option<OsString>) -> Answers {
    match variable {
        None => Answers::Unknown,
        Some(value) if value == NOT_PUBLIC => Answers::NotPublic,
        Some(value) => Answers::At(PathBuf::from(value)),
    }
}

/// Returns the directory of all recorded answers. Reports the calling test as not run if [`RECORDED_ANSWERS`] names none.
///
/// # Panics
/// The variable `CI` is `true`, and [`RECORDED_ANSWERS`] is not set. The value `none` is allowed there.
#[track_caller]
pub fn all_answers() -> Option<PathBuf> {
    let missing = format!("all recorded answers: set {RECORDED_ANSWERS} to their directory");
    match answers(std::env::var_os(RECORDED_ANSWERS)) {
        Answers::At(directory) => return Some(directory),
        Answers::NotPublic => drop(report(&missing)),
        Answers::Unknown => not_run(&missing),
    }
    None
}

/// Returns the directory with the most recorded answers: all of them, or those that are part of the project.
pub fn most_answers() -> PathBuf {
    match answers(std::env::var_os(RECORDED_ANSWERS)) {
        Answers::At(directory) => directory,
        Answers::NotPublic | Answers::Unknown => committed_answers(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_that_are_not_public_have_a_value_of_their_own() {
        let of = |value: &str| answers(Some(OsString::from(value)));
        assert_eq!(of("none"), Answers::NotPublic);
        assert_eq!(of("/answers"), Answers::At(PathBuf::from("/answers")));
        assert_eq!(answers(None), Answers::Unknown);
    }

    #[test]
    fn ci_is_recognized_by_true_only() {
        assert!(is_continuous_integration(Some(OsStr::new("true"))));
        assert!(!is_continuous_integration(Some(OsStr::new(""))));
        assert!(!is_continuous_integration(None));
    }
}
