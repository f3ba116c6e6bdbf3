//! Reports tests that do not run because the machine lacks what they need. Tests install nothing: they look for a
//! program, a right or recorded answers, call [`not_run`] if it is missing, and return.
//!
//! The test framework counts such a test as passed, and hides its output. Therefore the report goes to the process's
//! standard error, which the framework does not capture, and to the file that [`LIST`] names: `make` prints that file
//! after the last test. In continuous integration nothing may be missing, so the test fails there.

use std::ffi::OsStr;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::panic::Location;
use std::path::PathBuf;

/// Variable that names the list of tests that did not run.
pub const LIST: &str = "REMORA_NOT_RUN";
/// Variable that names the directory of all recorded answers. The tests always compare the answers in
/// [`committed_answers`], and these in addition.
pub const RECORDED_ANSWERS: &str = "REMORA_CONFORMANCE_DIR";

/// Reports that the calling test does not run. `missing` names what the machine lacks, and the remedy.
///
/// # Panics
/// The variable `CI` is `true`: a test of the project must not be left out there.
#[track_caller]
pub fn not_run(missing: &str) {
    let thread = std::thread::current();
    // The test framework names the thread after the test, except if it runs one test at a time.
    let test = thread.name().filter(|name| *name != "main").unwrap_or("a test");
    let line = format!("NOT RUN: {} ({test}) needs {missing}\n", Location::caller().file());
    assert!(!is_continuous_integration(std::env::var_os("CI").as_deref()), "{line}in CI every test has to run");
    // One write per line, so that lines of concurrent tests do not mix.
    let _a_closed_stream_hides_only_this_line = std::io::stderr().write_all(line.as_bytes());
    if let Some(path) = std::env::var_os(LIST) {
        let list = OpenOptions::new().create(true).append(true).open(&path);
        let written = list.and_then(|mut list| list.write_all(line.as_bytes()));
        assert!(written.is_ok(), "{LIST} is {}, which cannot be written: {written:?}", path.display());
    }
}

fn is_continuous_integration(variable: Option<&OsStr>) -> bool {
    variable.is_some_and(|value| value == "true")
}

/// Directory of the recorded answers that are part of the project.
pub fn committed_answers() -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "..", "recorded"].iter().collect()
}

/// Returns the directory of all recorded answers. Reports the calling test as not run if [`RECORDED_ANSWERS`] is not
/// set.
#[track_caller]
pub fn all_answers() -> Option<PathBuf> {
    let directory = std::env::var_os(RECORDED_ANSWERS).map(PathBuf::from);
    if directory.is_none() {
        not_run(&format!("all recorded answers: set {RECORDED_ANSWERS} to their directory"));
    }
    directory
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ci_is_recognized_by_true_only() {
        assert!(is_continuous_integration(Some(OsStr::new("true"))));
        assert!(!is_continuous_integration(Some(OsStr::new(""))));
        assert!(!is_continuous_integration(None));
    }
}
