//! Commands in the documentation: in code blocks, and between backticks.

use std::path::{Path, PathBuf};

use anyhow::Context as _;

/// Documents for users, developers and operators on call.
const DOCUMENTS: [&str; 9] = [
    "README.md",
    "charts/remora/README.md",
    "e2e/clients/README.md",
    "e2e/cluster/README.md",
    "e2e/fuzz/README.md",
    "operator/README.md",
    "sidecar/COMPATIBILITY.md",
    "sidecar/README.md",
    "sidecar/profile/README.md",
];
/// First words that mark a line as a command.
const PROGRAMS: [&str; 8] = ["cargo", "curl", "helm", "kubectl", "make", "remora-operator", "remora-sidecar", "source"];

/// Command that a document shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// Path of the document from the root of the repository.
    pub document: &'static str,
    /// The command in one line, without a comment.
    pub text: String,
}

impl Command {
    /// Returns the first word of the command.
    #[must_use]
    pub fn program(&self) -> &str {
        self.text.split(' ').next().unwrap_or_default()
    }
}

/// Returns the root of the repository.
#[must_use]
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Returns all commands of all documents.
///
/// # Errors
///
/// Returns an error if a document cannot be read.
pub fn documented() -> anyhow::Result<Vec<Command>> {
    let mut commands = Vec::new();
    for document in DOCUMENTS {
        let text = std::fs::read_to_string(root().join(document)).with_context(|| document.to_owned())?;
        commands.extend(commands_of(&text).into_iter().map(|text| Command { document, text }));
    }
    Ok(commands)
}

fn is_command(text: &str) -> bool {
    text.split_once(' ').is_some_and(|(program, _)| PROGRAMS.contains(&program))
}

fn commands_of(text: &str) -> Vec<String> {
    let mut commands = Vec::new();
    let mut lines = text.lines();
    let mut fenced = None;
    while let Some(line) = lines.next() {
        if let Some(language) = line.strip_prefix("```") {
            fenced = fenced.is_none().then_some(language);
            continue;
        }
        let block = match fenced {
            Some("sh" | "bash" | "shell") => Some(line),
            Some(_) => continue,
            None => line.strip_prefix("    "),
        };
        let Some(begun) = block else {
            // A program's name alone, or with a subcommand only, is a mention and not a command to run.
            let told = line.split('`').skip(1).step_by(2).filter(|told| is_command(told));
            commands.extend(
                told.filter(|told| told.starts_with("make ") || told.split(' ').count() > 2).map(str::to_owned),
            );
            continue;
        };
        let mut command = begun.trim().to_owned();
        if !is_command(&command) {
            continue;
        }
        while let Some(begun) = command.strip_suffix('\\') {
            command = begun.trim_end().to_owned() + " " + lines.next().unwrap_or_default().trim();
        }
        commands.push(command.split(" #").next().unwrap_or_default().trim_end().to_owned());
    }
    commands
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_found_in_code_blocks() {
        let text = "Run `make demo`, or `helm uninstall`, or `kubectl get fenv`; not `makefile x`.\n\n    make test   # all\n    \
                    helm install a b \\\n      --set 'x={y}'\n    # nothing\n    kind: Pod\n\n```yaml\nmake: nothing\n    make x\n\
                    ```\n\n```sh\ncurl -H 'a: b' http://x/\n```\n";
        let expected = [
            "make demo",
            "kubectl get fenv",
            "make test",
            "helm install a b --set 'x={y}'",
            "curl -H 'a: b' http://x/",
        ];
        assert_eq!(commands_of(text), expected);
    }
}
