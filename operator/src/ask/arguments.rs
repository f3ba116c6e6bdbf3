//! Command line of `kubectl remora`.

use std::io::IsTerminal;

use clap::{Parser, Subcommand, ValueEnum};

use super::{OutputFormat, check, cluster::Connection, diff, explain, flags, inspect, sign, size};
use crate::api::Period;

/// Ask about feature environments: published revisions, changes, the reason of a flag's value, and faults.
///
/// Exit codes: 0 if all is well, 1 if the command found something, 2 for a wrong command line, 3 if the cluster cannot be
/// reached or a right is missing.
#[derive(Debug, Parser)]
#[command(name = "kubectl-remora", bin_name = "kubectl remora", version, propagate_version = true)]
pub struct Arguments {
    #[command(flatten)]
    pub(super) connection: Connection,
    /// Form of the answer.
    #[arg(long, short, global = true, value_enum, default_value = "text")]
    output: Format,
    /// Whether text has colours.
    #[arg(long, global = true, value_enum, default_value = "auto")]
    color: When,
    #[command(subcommand)]
    pub(super) command: Command,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Text for people.
    Text,
    /// JSON for programs.
    Json,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum When {
    /// On a terminal, unless `NO_COLOR` is set.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    Check(check::Check),
    Explain(explain::Explain),
    Diff(diff::Diff),
    /// List the revisions that are kept, with the time of their publication and the flags that they changed.
    History {
        /// Name of the FeatureEnvironment.
        environment: String,
    },
    Flags(flags::Flags),
    Inspect(inspect::Inspect),
    Size(size::Size),
    /// List the pods of an environment: node, revision, since when, and why a pod is behind. Exit code 1 if one is.
    Pods {
        /// Name of the FeatureEnvironment.
        environment: String,
    },
    Sign(sign::Sign),
    /// Publish an earlier revision, and stay at it.
    Pin {
        /// Name of the FeatureEnvironment.
        environment: String,
        /// Revision to publish, as `history` lists it.
        revision: String,
    },
    /// Publish the newest revision again.
    Unpin {
        /// Name of the FeatureEnvironment.
        environment: String,
    },
    /// Publish the document that is held back.
    Confirm {
        /// Name of the FeatureEnvironment.
        environment: String,
        /// Revision to publish. Default: the revision that is held back now.
        revision: Option<String>,
    },
    /// Ask the operator to fetch the document now.
    Refresh {
        /// Name of the FeatureEnvironment.
        environment: String,
        /// Wait for the outcome, at most this time, for example `30s`. Exit code 1 if the fetch fails or is not done then.
        #[arg(long, value_name = "TIME", num_args = 0..=1, default_missing_value = "1m")]
        wait: Option<Period>,
    },
    /// Print a program for kubectl's completion. Save it as `kubectl_complete-remora` in a directory of your PATH, and make
    /// it executable.
    Completion,
}

impl Arguments {
    /// Returns how the answer is written.
    pub(super) fn output_format(&self) -> OutputFormat {
        let colours = match self.color {
            When::Always => true,
            When::Never => false,
            When::Auto => std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none(),
        };
        OutputFormat { json: self.output == Format::Json, colours }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn command_line_is_consistent() {
        Arguments::command().debug_assert();
        let arguments = Arguments::parse_from(["kubectl-remora", "history", "storefront", "-n", "shop", "-o", "json"]);
        assert!(arguments.output_format().json);
        let wrong = Arguments::try_parse_from(["kubectl-remora", "pin", "storefront"]).unwrap_err();
        assert_eq!(wrong.exit_code(), 2);
    }
}
