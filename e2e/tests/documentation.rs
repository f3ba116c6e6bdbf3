//! Commands in the documentation: cases on a cluster run the commands about a cluster, and this test runs all others.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that panics has failed, as it should"
)]

use std::path::{Path, PathBuf};
use std::process::Command;

use remora_e2e::harness::{documented, program, root};

/// Directories with the demo's document, in its original and a changed form.
struct Snapshots(PathBuf);

impl Snapshots {
    fn new() -> Snapshots {
        let place = std::env::temp_dir().join(format!("remora-documentation-{}", std::process::id()));
        std::fs::create_dir(&place).unwrap();
        let document = std::fs::read_to_string(root().join("e2e/demo/document.json")).unwrap();
        for (name, document) in [("A", document.clone()), ("B", document.replace("classic", "express"))] {
            let path = place.join(name).with_extension("json");
            std::fs::write(&path, document).unwrap();
            let mut compile = Command::new(program("remora-operator").unwrap());
            let output =
                compile.arg("compile").arg("--document").arg(path).arg("--output").arg(place.join(name)).output();
            assert!(output.unwrap().status.success());
        }
        Snapshots(place)
    }
}

impl Drop for Snapshots {
    fn drop(&mut self) {
        // A leftover directory does not justify another failure.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Runs a command at the root of the repository and returns its output.
fn run(command: &str, path: &Path) -> String {
    let path = format!("{}:{}", path.display(), std::env::var("PATH").unwrap());
    let output = Command::new("bash").args(["-euc", command]).current_dir(root()).env("PATH", path).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{command}: {said}{}", String::from_utf8_lossy(&output.stderr));
    said
}

#[test]
fn documented_commands_run() {
    let programs = program("remora-operator").unwrap().parent().unwrap().to_owned();
    let snapshots = Snapshots::new();
    let place = |name: &str| format!(" {}", snapshots.0.join(name).display());
    let help = run("make help", &programs);
    let commands = documented().unwrap();
    for command in &commands {
        let text = command.text.as_str();
        match command.program() {
            // `tests/cases/commands.rs` runs these.
            "kubectl" | "helm" => {}
            "make" => {
                // Most targets take minutes, and some of them run this test: the check is only that make knows them.
                run(&format!("make --dry-run {}", &text["make ".len()..]), &programs);
                // Variables may follow the target.
                let known = text.split(' ').take_while(|word| !word.contains('=')).collect::<Vec<_>>().join(" ");
                assert!(
                    known == "make help"
                        || help.contains(&format!("\n  {known} "))
                        || help.starts_with(&format!("  {known} ")),
                    "{text} is not in:\n{help}"
                );
            }
            "remora-operator" => {
                let text = text.replace(" DIR", &place("A")).replace(" A B", &[place("A"), place("B")].concat());
                assert!(!run(&text, &programs).is_empty(), "{text}");
            }
            "source" => {
                run(text, &programs);
            }
            // The test of that package replays every file of its corpus.
            "cargo" if text.starts_with("cargo run -p remora-fuzz -- ") => {
                let file = text.rsplit(' ').next().unwrap_or_default();
                assert!(root().join(file).is_file(), "{text}");
            }
            "cargo" => {
                let (_, test) = text.split_once("cargo test -p remora-e2e --test ").unwrap_or_else(|| panic!("{text}"));
                assert!(root().join("e2e/tests").join(test).join("main.rs").is_file(), "{text}");
            }
            _ => panic!("{}: nobody tries {text}: say here how", command.document),
        }
    }
    assert!(commands.len() > 20, "{commands:?}");
}
