//! Programs that replace the compiler's child process.

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::atomic::{AtomicUsize, Ordering},
};

/// Path of the operator's own binary, whose child is the real compiler.
pub(crate) const OPERATOR: &str = env!("CARGO_BIN_EXE_remora-operator");

/// Returns a new directory that no other test uses.
pub(crate) fn directory() -> PathBuf {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("program-{}-{number}", std::process::id()));
    let _left_by_another_process = fs::remove_dir_all(&directory);
    fs::create_dir_all(&directory).unwrap();
    directory
}

/// Writes a shell script into `directory`. The script gets the operator's path as `$operator` and its directory as
/// `$directory`.
///
/// A shell writes the file: a file that this process has open for writing cannot be executed by children that it starts
/// in the meantime.
pub(crate) fn script(directory: &Path, text: &str) -> PathBuf {
    let path = directory.join("script");
    let mut shell = Command::new("/bin/sh")
        .args(["-c", "cat > \"$0\" && chmod 755 \"$0\""])
        .arg(&path)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let head = format!("#!/bin/sh\nPATH=/usr/bin:/bin\noperator='{OPERATOR}'\ndirectory='{}'\n", directory.display());
    shell.stdin.take().unwrap().write_all((head + text + "\n").as_bytes()).unwrap();
    assert!(shell.wait().unwrap().success());
    path
}
