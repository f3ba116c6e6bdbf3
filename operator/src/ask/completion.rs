//! Completion of `kubectl remora`: candidates for the last word of a command line.
//!
//! kubectl runs the program `kubectl_complete-remora` with the words after `kubectl remora`, and reads one candidate per
//! line, then a line with a bit mask that tells the shell what to do (kubectl's `plugin_completion.go`, cobra's
//! `ShellCompDirective`).

use std::{
    ffi::{OsStr, OsString},
    io::{self, Write},
    sync::Arc,
};

use clap::{Arg, ArgMatches, Command, CommandFactory, FromArgMatches};
use clap_complete::engine::{ArgValueCandidates, CompletionCandidate, complete as complete_words};
use kube::ResourceExt;
use parking_lot::Mutex;
use remora_tools::terminal::printable;

use super::{
    arguments::Arguments,
    cluster::{Cluster, Connection},
    failure::Failure,
    published,
};
use crate::api::{FeatureEnvironment, FeatureEnvironmentStatus};

/// First argument of `kubectl-remora` that asks for candidates. The other arguments are the words.
pub const COMPLETE: &str = "__complete";

/// The program `kubectl_complete-remora`.
pub(super) const PROGRAM: &str = "#!/bin/sh\nexec kubectl remora __complete \"$@\"\n";

/// The shell completes no names of files.
const NO_FILES: u8 = 4;
/// The shell adds no space after the candidate.
const NO_SPACE: u8 = 2;

/// Kind of the names that an argument takes from the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Subject {
    Environment,
    Revision,
    Flag,
}

impl Subject {
    /// Returns what an argument of this name is about.
    fn of(argument: &Arg) -> Option<Self> {
        match argument.get_id().as_str() {
            "environment" => Some(Self::Environment),
            "revision" | "before" | "after" => Some(Self::Revision),
            "flags" => Some(Self::Flag),
            _ => None,
        }
    }
}

/// A name with what it is, which the shell shows beside it.
type Name = (String, String);

/// Writes the candidates for the last of `words`. A cluster that gives no answer has no names.
///
/// # Errors
/// If the candidates cannot be written.
pub(super) async fn complete(words: Vec<OsString>, out: &mut impl Write) -> io::Result<()> {
    let connection = matches(&words).as_ref().map(|matches| Connection::from_arg_matches(matches).unwrap_or_default());
    let connected = async || Cluster::connect(&connection.unwrap_or_default()).await.ok();
    candidates(words, connected, out).await
}

/// Writes the candidates, and connects to the cluster only if one of its names may be meant.
pub(super) async fn candidates(
    words: Vec<OsString>,
    connect: impl AsyncFnOnce() -> Option<Cluster>,
    out: &mut impl Write,
) -> io::Result<()> {
    let environment = matches(&words).and_then(|matches| {
        let (_, matches) = matches.subcommand()?;
        matches.try_get_one::<String>("environment").ok().flatten().cloned()
    });
    let (mut found, subject) = known(&words, &[]);
    if let Some(subject) = subject
        && let Some(cluster) = connect().await
    {
        let names = names(&cluster, subject, environment.as_deref()).await.unwrap_or_default();
        found = known(&words, &names).0;
    }
    let ends_open = found.iter().any(|candidate| candidate.get_value().as_encoded_bytes().ends_with(b"/"));
    for candidate in found {
        let value = printable(&candidate.get_value().to_string_lossy()).to_string();
        match candidate.get_help().map(ToString::to_string).as_deref().and_then(|help| help.lines().next()) {
            Some(help) => writeln!(out, "{value}\t{}", printable(help))?,
            None => writeln!(out, "{value}")?,
        }
    }
    writeln!(out, ":{}", if ends_open { NO_FILES | NO_SPACE } else { NO_FILES })
}

/// Returns the candidates, with these names where an argument has a [`Subject`], and the subject of the last word.
fn known(words: &[OsString], names: &[Name]) -> (Vec<CompletionCandidate>, Option<Subject>) {
    let asked = Arc::new(Mutex::new(None));
    let offered: Arc<[Name]> = names.into();
    let mut command = Arguments::command().mut_subcommands(|command| {
        command.mut_args(|argument| match Subject::of(&argument) {
            Some(subject) => {
                let (asked, offered) = (Arc::clone(&asked), Arc::clone(&offered));
                argument.add(ArgValueCandidates::new(move || {
                    *asked.lock() = Some(subject);
                    offered.iter().map(candidate).collect()
                }))
            }
            None => argument,
        })
    });
    let arguments: Vec<OsString> = std::iter::once("kubectl-remora".into()).chain(words.iter().cloned()).collect();
    let found = complete_words(&mut command, arguments, words.len().max(1), None).unwrap_or_default();
    // An option is a candidate for an empty word, too, but a name is more likely.
    let is_option = |word: &OsStr| word.as_encoded_bytes().starts_with(b"-");
    let asks_option = words.last().is_some_and(|word| is_option(word));
    let subject = *asked.lock();
    (found.into_iter().filter(|candidate| asks_option || !is_option(candidate.get_value())).collect(), subject)
}

fn candidate((name, what): &Name) -> CompletionCandidate {
    CompletionCandidate::new(name).help((!what.is_empty()).then(|| what.into()))
}

/// Parses the words before the last one as far as they are valid.
fn matches(words: &[OsString]) -> Option<ArgMatches> {
    let complete = words.split_last().map(|(_, complete)| complete).unwrap_or_default();
    let words = std::iter::once(OsStr::new("kubectl-remora")).chain(complete.iter().map(OsString::as_os_str));
    let command: Command = Arguments::command().ignore_errors(true);
    command.try_get_matches_from(words).ok()
}

async fn names(cluster: &Cluster, subject: Subject, environment: Option<&str>) -> Result<Vec<Name>, Failure> {
    let environment = match (subject, environment) {
        (Subject::Environment, _) => {
            let all = cluster.list::<FeatureEnvironment>(Some(cluster.namespace()), "").await?;
            return Ok(all.iter().map(|found| (found.name_any(), String::new())).collect());
        }
        (_, Some(environment)) => cluster.environment(environment).await?,
        (_, None) => return Ok(Vec::new()),
    };
    if subject == Subject::Revision {
        return Ok(revisions(&environment.status.unwrap_or_default()));
    }
    let found = published::read(cluster, &environment, None).await?;
    let features = found.snapshot.describe().features.into_iter();
    Ok(features.map(|feature| (feature.name.to_owned(), String::new())).collect())
}

fn revisions(status: &FeatureEnvironmentStatus) -> Vec<Name> {
    let published = status.revision.iter().map(|revision| (revision.to_string(), "published".to_owned()));
    let held = status.held_revision.iter().map(|revision| (revision.to_string(), "held back".to_owned()));
    let past =
        status.history.iter().map(|past| (past.revision.to_string(), format!("published at {}", past.published_at.0)));
    published.chain(held).chain(past).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Completes the last of these words without a cluster.
    async fn lines(words: &[&str]) -> Vec<String> {
        let mut out = Vec::new();
        candidates(words.iter().map(Into::into).collect(), async || None, &mut out).await.unwrap();
        String::from_utf8(out).unwrap().lines().map(str::to_owned).collect()
    }

    #[tokio::test]
    async fn commands_options_and_values_are_completed_with_descriptions() {
        let commands = lines(&[""]).await;
        for command in Arguments::command().get_subcommands() {
            let name = command.get_name();
            assert!(commands.iter().any(|line| line.starts_with(&format!("{name}\t"))), "{name}: {commands:?}");
        }
        assert_eq!(commands.last().map(String::as_str), Some(":4"));
        assert_eq!(lines(&["hist"]).await.len(), 2);
        let options = lines(&["refresh", "storefront", "--wa"]).await;
        assert!(options[0].starts_with("--wait\tWait for the outcome"), "{options:?}");
        assert_eq!(lines(&["history", "-o", "j"]).await, ["json\tJSON for programs", ":4"]);
        assert_eq!(lines(&["history", "--output=j"]).await, ["--output=json\tJSON for programs", ":4"]);
    }

    #[tokio::test]
    async fn words_that_mean_nothing_are_answered_with_the_directive() {
        for words in [&["nonsense", "x"][..], &["pin", "storefront", "x", "y"], &["--no-such", ""], &[]] {
            let lines = lines(words).await;
            assert_eq!(lines.last().map(String::as_str), Some(":4"), "{words:?}");
        }
    }
}
