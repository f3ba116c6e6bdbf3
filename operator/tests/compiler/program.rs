//! Programs that stand in for the compiler's child.

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::atomic::{AtomicUsize, Ordering},
};

/// The operator itself, whose child is the real one.
pub(crate) const OPERATOR: &str = env!("CARGO_BIN_EXE_remora-operator");

/// A directory that nobody else has.
pub(crate) fn directory() -> PathBuf {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("program-{}-{number}", std::process::id()));
    let _left_by_another_process = fs::remove_dir_all(&directory);
    fs::create_dir_all(&directory).unwrap();
    directory
}

/// A shell script in `directory`, which finds the operator as `$operator` and its directory as `$directory`.
///
/// A shell writes it: a file that this process has open for writing cannot be run by others that it starts meanwhile.
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
