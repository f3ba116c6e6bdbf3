//! Checks that the recorded profiles of the shipped sidecar (`sidecar/profile`) still fit its build. The compiler does
//! not report a stale profile: it finds functions by names that contain a hash of their crate, and compiles functions
//! that it does not find as if there were no profile.
//!
//! Therefore each profile has a text file with the inputs of these hashes: the compiler, the settings, and the crates
//! with their versions and features. All of them must be equal. The sidecar's own sources must be similar: the text has
//! a sample of their lines, most of which must still exist. The compiler does report functions that it finds by name
//! but whose branches have changed: `fits.sh` checks these when images are built.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Smallest percentage of sampled lines that must still exist.
const ALIKE: usize = 75;
/// One line in this many is in the sample.
const SAMPLE: u64 = 16;
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
const RECORD: &str = "make profile";

/// Inputs of the build that a profile was recorded with.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Basis {
    /// Output of `rustc --version`.
    compiler: String,
    /// Lines of the settings in Cargo.toml.
    settings: BTreeSet<String>,
    /// Crates with versions and features.
    crates: BTreeSet<String>,
    /// Hashes of a sample of the source lines.
    lines: BTreeSet<String>,
}

#[test]
fn profiles_are_of_what_is_built() {
    let records = profiles();
    if std::env::var_os("REMORA_RECORD").is_some() {
        let target = host();
        std::fs::write(text_of(&target), Basis::now(&target).to_text()).unwrap();
        return;
    }
    assert!(!records.is_empty(), "there is no profile in sidecar/profile: {RECORD}");
    for target in records {
        let path = text_of(&target);
        let text =
            std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}; {RECORD}", path.display()));
        let (then, now) = (Basis::of_text(&text), Basis::now(&target));
        // A build with another compiler does not use the profile, and `flags.sh` reports that.
        if then.compiler != now.compiler {
            eprintln!(
                "{target}: the profile is of {}, and this is {}, which does not use it",
                then.compiler, now.compiler
            );
        }
        if let Err(complaint) = then.compare(&now) {
            panic!(
                "the profile for {target} is not of the sidecar as it is now, so that it is shipped slower than it \
                 could be:\n{complaint}On such a machine: {RECORD}, and commit sidecar/profile with the change."
            );
        }
    }
}

#[test]
fn images_are_built_with_the_compiler_that_recorded() {
    let toolchain = std::fs::read_to_string(Path::new(ROOT).join("rust-toolchain.toml")).unwrap();
    for target in profiles() {
        let text = std::fs::read_to_string(text_of(&target)).unwrap();
        let compiler = Basis::of_text(&text).compiler;
        let version = compiler.split(' ').nth(1).expect("a version");
        assert!(
            toolchain.contains(&format!("\nchannel = \"{version}\"\n")),
            "rust-toolchain.toml has another compiler than {compiler}, of which the profile for {target} is. With the \
             toolchain's: {RECORD}"
        );
    }
}

#[test]
fn discarded_counts_are_reported_and_too_many_are_refused() {
    let target = "x86_64-unknown-linux-gnu";
    let text = std::fs::read_to_string(text_of(target)).unwrap();
    let counts: u64 = text.lines().find_map(|line| line.strip_prefix("counts ")).expect("counts").parse().unwrap();
    let log = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("build-{}.log", std::process::id()));
    let fits = |lost: &[u64]| {
        let mut lines = "   Compiling remora-snapshot v0.1.0\n".to_owned();
        for lost in lost {
            let _ = writeln!(
                lines,
                "warning: remora_snapshot.0-cgu.0: function control flow change detected (hash mismatch) f Hash = 7 up to \
                 {lost} count discarded"
            );
        }
        std::fs::write(&log, lines).unwrap();
        let fits = Path::new(ROOT).join("sidecar/profile/fits.sh");
        let ended = Command::new(fits).arg(&log).arg(target).output().unwrap();
        let output = String::from_utf8([ended.stdout, ended.stderr].concat()).unwrap();
        (ended.status.success(), output)
    };
    assert_eq!(fits(&[]), (true, String::new()));
    let (good, output) = fits(&[counts / 10, counts / 10 + 10]);
    assert!(good && output.contains("20 % of the sidecar's profile"), "{output}");
    let (good, output) = fits(&[counts / 5, counts / 5 + 10]);
    assert!(!good && output.contains("40 % of") && output.contains(RECORD), "{output}");
    std::fs::remove_file(log).unwrap();
}

/// Lists the targets that have a profile.
fn profiles() -> Vec<String> {
    let files = std::fs::read_dir(Path::new(ROOT).join("sidecar/profile")).unwrap();
    let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    names.filter_map(|name| name.strip_suffix(".profdata").map(str::to_owned)).collect()
}

fn text_of(target: &str) -> PathBuf {
    Path::new(ROOT).join("sidecar/profile").join(format!("{target}.txt"))
}

fn output_of(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).current_dir(ROOT).output().unwrap();
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn host() -> String {
    output_of("rustc", &["-vV"]).lines().find_map(|line| line.strip_prefix("host: ")).unwrap().to_owned()
}

/// Returns the lines of the settings for shipped programs.
fn settings(manifest: &str) -> BTreeSet<String> {
    let mut settings = BTreeSet::new();
    let mut section = "";
    for line in manifest.lines() {
        if line.starts_with('[') {
            section = line.trim_matches(['[', ']']);
        } else if section.starts_with("profile.ship") || section.starts_with("profile.release") {
            let line = line.split('#').next().unwrap_or_default().trim();
            if !line.is_empty() {
                settings.insert(format!("{section}: {line}"));
            }
        }
    }
    settings
}

/// Adds a sample of the source lines, without comments, short lines and tests.
fn sample(directory: &Path, lines: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sample(&path, lines);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            let text = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
            let telling = text.lines().map(str::trim).filter(|line| line.len() > 10 && !line.starts_with("//"));
            lines.extend(telling.map(hash).filter(|hash| hash % SAMPLE == 0).map(|hash| format!("{hash:016x}")));
        }
    }
}

/// FNV-1a.
fn hash(line: &str) -> u64 {
    line.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

impl Basis {
    fn now(target: &str) -> Basis {
        let mut arguments = vec!["tree", "--locked", "-p", "remora-sidecar", "-e", "normal,build", "--target", target];
        arguments.extend(["--prefix", "none", "--no-dedupe", "-f", "{p} {f}"]);
        // The paths of the workspace's own crates do not matter.
        let place = |line: &str| match (line.find(" (/"), line.rfind(')')) {
            (Some(from), Some(to)) => format!("{}{}", &line[..from], &line[to + 1..]).trim().to_owned(),
            _ => line.trim().to_owned(),
        };
        let mut lines = BTreeSet::new();
        for sources in ["sidecar/src", "sidecar/snapshot/src"] {
            sample(&Path::new(ROOT).join(sources), &mut lines);
        }
        Basis {
            compiler: output_of("rustc", &["-V"]).trim().to_owned(),
            settings: settings(&std::fs::read_to_string(Path::new(ROOT).join("Cargo.toml")).unwrap()),
            crates: output_of(env!("CARGO"), &arguments).lines().map(place).collect(),
            lines,
        }
    }

    fn to_text(&self) -> String {
        let mut text =
            format!("# What the profile beside this is of. To write both anew: {RECORD}\n{}\n", self.compiler);
        for (what, lines) in [("setting", &self.settings), ("crate", &self.crates), ("line", &self.lines)] {
            for line in lines {
                let _ = writeln!(text, "{what} {line}");
            }
        }
        text
    }

    fn of_text(text: &str) -> Basis {
        let all = |what: &str| text.lines().filter_map(|line| line.strip_prefix(what)).map(str::to_owned).collect();
        Basis {
            compiler: text.lines().find(|line| line.starts_with("rustc ")).unwrap_or_default().to_owned(),
            settings: all("setting "),
            crates: all("crate "),
            lines: all("line "),
        }
    }

    /// Checks that a profile of this build fits the build `now`.
    fn compare(&self, now: &Basis) -> Result<(), String> {
        let mut complaints = String::new();
        for (what, then, now) in [("setting", &self.settings, &now.settings), ("crate", &self.crates, &now.crates)] {
            for line in then.difference(now) {
                let _ = writeln!(complaints, "{what} then, not now: {line}");
            }
            for line in now.difference(then) {
                let _ = writeln!(complaints, "{what} now, not then: {line}");
            }
        }
        let (there, all) = (self.lines.intersection(&now.lines).count(), self.lines.len());
        if all == 0 || there * 100 < all * ALIKE {
            let _ = writeln!(
                complaints,
                "of {all} lines of sidecar/src and sidecar/snapshot/src, a sample, {there} are there, and {ALIKE} % have to be"
            );
        }
        if complaints.is_empty() { Ok(()) } else { Err(complaints) }
    }
}

fn basis(crates: &[&str], lines: std::ops::Range<usize>) -> Basis {
    Basis {
        compiler: "rustc 1.0.0 (0 2015-05-15)".to_owned(),
        settings: settings(
            "[profile.release]\nlto = \"thin\" # A reason.\n\n[profile.ship]\ndebug = 0\n[other]\nx = 1\n",
        ),
        crates: crates.iter().map(|name| (*name).to_owned()).collect(),
        lines: lines.map(|line| line.to_string()).collect(),
    }
}

#[test]
fn written_basis_is_read_back() {
    let basis = basis(&["hyper v1.0.0 default,http1", "own v0.1.0"], 0..100);
    assert_eq!(Basis::of_text(&basis.to_text()), basis);
    assert_eq!(basis.settings.len(), 2, "{:?}", basis.settings);
}

#[test]
fn other_crates_and_settings_are_reported() {
    let then = basis(&["hyper v1.0.0 http1", "own v0.1.0"], 0..100);
    let complaint = then.compare(&basis(&["hyper v1.0.1 http1", "own v0.1.0"], 0..100)).unwrap_err();
    assert_eq!(complaint, "crate then, not now: hyper v1.0.0 http1\ncrate now, not then: hyper v1.0.1 http1\n");
    let now = Basis { settings: BTreeSet::new(), ..then.clone() };
    assert!(then.compare(&now).unwrap_err().contains("setting then, not now: profile.ship: debug = 0"));
}

#[test]
fn profile_fits_until_more_than_a_quarter_of_lines_differ() {
    let then = basis(&[], 0..100);
    assert_eq!(then.compare(&basis(&[], 25..500)), Ok(()));
    assert!(then.compare(&basis(&[], 26..500)).unwrap_err().contains("74 are there"));
    // A text without lines does not fit any build.
    assert!(basis(&[], 0..0).compare(&then).is_err());
}
