//! Generated texts that are committed: a test compares each with what the code generates, or rewrites it.

use std::ffi::OsStr;
use std::path::Path;

/// Variable that makes the tests rewrite all generated texts. `make generate` sets it.
pub const REWRITE: &str = "REMORA_REWRITE";

/// Asserts that a file has this text. Writes the file instead if [`REWRITE`] is set.
///
/// # Panics
/// The file has another text, or cannot be written.
#[track_caller]
pub fn assert_generated(path: &Path, text: &str) {
    compare(path, text, std::env::var_os(REWRITE).as_deref());
}

#[track_caller]
fn compare(path: &Path, text: &str, rewrite: Option<&OsStr>) {
    if rewrite.is_some_and(|value| value == "1") {
        // Other tests of the program read the file meanwhile, so it is never half written.
        let new = path.with_extension("new");
        let written = std::fs::write(&new, text).and_then(|()| std::fs::rename(&new, path));
        assert!(written.is_ok(), "{}: {written:?}", path.display());
        return;
    }
    let committed = std::fs::read_to_string(path).unwrap_or_default();
    let line = committed.lines().zip(text.lines()).take_while(|(committed, generated)| committed == generated).count();
    assert!(
        committed == text,
        "{} differs from what the code generates, from line {} on: run make generate, and commit the file with the change\n\
         committed: {}\ngenerated: {}",
        path.display(),
        line + 1,
        committed.lines().nth(line).unwrap_or("(end of file)"),
        text.lines().nth(line).unwrap_or("(end of file)"),
    );
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;

    use super::*;

    #[test]
    fn text_that_differs_is_refused_and_rewritten_on_request() {
        let path = std::env::temp_dir().join(format!("remora-generated-{}", std::process::id()));
        assert!(catch_unwind(|| compare(&path, "a\nb\n", None)).is_err(), "a missing file passed");
        compare(&path, "a\nb\n", Some(OsStr::new("1")));
        compare(&path, "a\nb\n", None);
        let refused = catch_unwind(|| compare(&path, "a\nc\n", Some(OsStr::new("0"))));
        let written = std::fs::read_to_string(&path);
        assert!(std::fs::remove_file(&path).is_ok());
        assert_eq!(written.ok().as_deref(), Some("a\nb\n"));
        let message = refused.err().and_then(|cause| cause.downcast::<String>().ok()).unwrap_or_default();
        assert!(message.contains("from line 2 on") && message.contains("make generate"), "{message}");
    }
}
