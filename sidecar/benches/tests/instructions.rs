//! Compares the number of instructions of each path with the record in `instructions.txt`. Counts do not vary like
//! times do. A path that takes over 3 % more fails the test, unless the same commit changes the record: `make record`
//! writes it.
//!
//! The counts are of the optimized library, with the rows of its tables in memory and its buffers grown. They depend on
//! the compiler, for copies on the C library, and for digests on the processor's support of AVX2. The record names all
//! of these. The counts depend on nothing else of the processor: the C library is told to use no optional instructions,
//! and the profiler emulates none beyond AVX2.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use remora_bench::document;
use remora_bench::operators::{self, OPERATORS};
use remora_bench::prepared::compiled;
use remora_bench::profile::{ENVIRONMENT, MEDIUM, PLAIN, Profile, WIDE, official};
use remora_snapshot::files;
use remora_testing::not_run;
use remora_tools::directory;

/// Largest increase in percent that passes.
const TOLERANCE: u64 = 3;
const RECORD: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/instructions.txt");
const RE_RECORD: &str = "make record";

/// Settings of the C library: no optional instructions, and no choice by the size of the caches.
const TUNABLES: &str = "glibc.cpu.hwcaps=-AVX512F,-AVX512VL,-AVX512BW,-AVX2,-AVX,-ERMS,-FSRM,-SSSE3,-Fast_Unaligned_Copy:\
                        glibc.cpu.x86_non_temporal_threshold=0x10000000:glibc.cpu.x86_rep_movsb_threshold=0x10000000";

#[test]
fn no_path_takes_more_instructions_than_recorded() {
    if let Err(error) = Command::new("valgrind").arg("--version").output() {
        return not_run(&format!("valgrind on PATH (Debian: apt-get install valgrind): {error}"));
    }
    let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("instructions-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&directory);
    prepare(&directory);
    let counts = count(&paths(), &directory);
    std::fs::remove_dir_all(&directory).unwrap();
    if std::env::var_os("REMORA_RECORD").is_some() {
        std::fs::write(RECORD, record(&counts)).unwrap();
        return;
    }
    let recorded = std::fs::read_to_string(RECORD).unwrap_or_else(|error| panic!("{RECORD}: {error}; {RE_RECORD}"));
    if let Err(complaint) = compare(&recorded, &counts) {
        panic!("{complaint}");
    }
}

/// Compiles the environments into the directories that the paths read.
fn prepare(directory: &Path) {
    let profiles =
        [PLAIN, official("official", 750), WIDE, MEDIUM, Profile { name: "overrides", identities: 750, ..PLAIN }];
    let documents = profiles.iter().map(|profile| (profile.name, document::write(profile)));
    let operators = OPERATORS.iter().map(|operator| (*operator, operators::document(operator)));
    for (name, document) in documents.chain(operators) {
        let compiled = compiled(&document, files::MAX_FILE_BYTES).unwrap();
        directory::write(&directory.join(name), ENVIRONMENT, &compiled).unwrap();
    }
}

/// Builds the program of the paths with the sidecar's settings, but with symbols to find functions by.
fn paths() -> PathBuf {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--quiet", "-p", "remora-bench", "--no-default-features", "--bin", "paths"]);
    cargo.args(["--profile", "counted", "--config", "profile.counted.inherits=\"ship\""]);
    cargo.args(["--config", "profile.counted.strip=\"none\"", "--message-format", "json-render-diagnostics"]);
    // The test's own build settings must not affect the counted program.
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("CARGO_PROFILE_") || name == "RUSTFLAGS") {
        cargo.env_remove(name);
    }
    let output = cargo.current_dir(env!("CARGO_MANIFEST_DIR")).stderr(std::process::Stdio::inherit()).output().unwrap();
    assert!(output.status.success(), "the paths do not build");
    let messages = String::from_utf8(output.stdout).unwrap();
    messages
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
        .find_map(|message| message["executable"].as_str().map(PathBuf::from))
        .expect("cargo says where the program is")
}

/// Returns the number of instructions by path. The profiler writes a file and resets its counts before and after each
/// call of `paths::measured`, so every second file counts one call.
fn count(paths: &Path, directory: &Path) -> Vec<(String, u64)> {
    let dump = directory.join("dump");
    let output = Command::new("valgrind")
        .args(["--quiet", "--tool=callgrind", "--dump-before=paths::measured", "--dump-after=paths::measured"])
        .arg(format!("--callgrind-out-file={}", dump.display()))
        .args([paths, directory])
        .env("GLIBC_TUNABLES", TUNABLES)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let names = String::from_utf8(output.stdout).unwrap();
    names.lines().enumerate().map(|(number, name)| (name.to_owned(), total(&dump, 2 * number + 2))).collect()
}

/// Returns the total of one of the profiler's files.
fn total(dump: &Path, number: usize) -> u64 {
    let path = format!("{}.{number}", dump.display());
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let total = text.lines().find_map(|line| line.strip_prefix("totals: ")).expect("a total");
    let total = total.trim().parse().unwrap();
    assert!(total > 0, "{path}: nothing was counted");
    total
}

/// Describes the environment that the counts depend on: compiler, C library and processor.
fn tools() -> String {
    let version = |program: &str| {
        let output = Command::new(program).arg("--version").output().unwrap();
        String::from_utf8(output.stdout).unwrap().lines().next().unwrap_or_default().to_owned()
    };
    format!("{}; {}; {}", version("rustc"), version("ldd"), processor())
}

#[cfg(target_arch = "x86_64")]
fn processor() -> &'static str {
    if std::arch::is_x86_feature_detected!("avx2") { "x86_64 with AVX2" } else { "x86_64 without AVX2" }
}

#[cfg(not(target_arch = "x86_64"))]
fn processor() -> &'static str {
    std::env::consts::ARCH
}

fn record(counts: &[(String, u64)]) -> String {
    let mut text = format!(
        "# Instructions that each path takes once, as tests/instructions.rs counts them. To write anew: {RE_RECORD}\n"
    );
    let _ = writeln!(text, "# {}", tools());
    for (name, count) in counts {
        let _ = writeln!(text, "{name:<34} {count:>10}");
    }
    text
}

fn compare(recorded: &str, counts: &[(String, u64)]) -> Result<(), String> {
    let rows = recorded.lines().filter(|line| !line.starts_with('#'));
    let recorded_counts: BTreeMap<&str, u64> = rows
        .map(|line| line.rsplit_once(' ').and_then(|(name, count)| Some((name.trim(), count.parse().ok()?))))
        .collect::<Option<_>>()
        .ok_or_else(|| format!("{RECORD} has a line that is no name and count: {RE_RECORD}"))?;
    let mut complaints = String::new();
    for (name, count) in counts {
        let Some(before) = recorded_counts.get(name.as_str()) else {
            let _ = writeln!(complaints, "{name}: {count}, not in the record");
            continue;
        };
        let percent = (*count as f64 / *before as f64 - 1.0) * 100.0;
        if count * 100 > before * (100 + TOLERANCE) {
            let _ = writeln!(complaints, "{name}: {count}, {percent:.1} % more than the {before} in the record");
        } else if count * 100 < before * (100 - TOLERANCE) {
            eprintln!("{name}: {count}, {:.1} % less than the {before} in the record: {RE_RECORD} keeps it", -percent);
        }
    }
    for name in recorded_counts.keys().filter(|name| !counts.iter().any(|(counted, _)| counted == *name)) {
        let _ = writeln!(complaints, "{name}: in the record, but not counted any more");
    }
    if complaints.is_empty() {
        return Ok(());
    }
    let tools = tools();
    let others = if recorded.contains(&tools) {
        String::new()
    } else {
        let then = recorded.lines().nth(1).unwrap_or_default().trim_start_matches("# ");
        format!("The record was made with other tools, which may be why: {then}; these are {tools}.\n")
    };
    Err(format!(
        "{complaints}{others}If it has to be: {RE_RECORD}, and commit {RECORD} with the change, saying in its message why."
    ))
}

#[test]
fn count_that_grew_or_is_not_recorded_is_reported() {
    let counts = |load, hit| vec![("load a".to_owned(), load), ("hit".to_owned(), hit)];
    let recorded = record(&counts(1000, 100));
    assert_eq!(compare(&recorded, &counts(1030, 90)), Ok(()));
    let complaint = compare(&recorded, &counts(1031, 100)).unwrap_err();
    assert!(complaint.contains("load a: 1031, 3.1 % more") && complaint.contains(RE_RECORD), "{complaint}");
    assert!(!complaint.contains("other tools"), "{complaint}");
    let complaint = compare(&recorded.replace("rustc", "rustc 0"), &counts(2000, 100)).unwrap_err();
    assert!(complaint.contains("other tools"), "{complaint}");
    assert!(compare(&recorded, &counts(1000, 100)[..1]).unwrap_err().contains("hit: in the record"));
    assert!(
        compare("# a\n# b\nhit 100\n", &counts(1000, 100)).unwrap_err().contains("load a: 1000, not in the record")
    );
    assert!(compare("hit\n", &[]).is_err());
}
