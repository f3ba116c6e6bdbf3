//! Defaults of the sidecar's options, which the administrator sets for all pods.

use super::{
    annotations,
    quantity::{self, Grammar, Quantity},
    startup_timeout::StartupTimeout,
};

/// Options of a sidecar where neither its pod nor the pod's namespace has an annotation. There is no memory limit among
/// them: it follows from the sizes of the pod's snapshots. The arguments have ids of their own, because the command that
/// has these options may have others with the names of the fields.
#[derive(Clone, Debug, clap::Args)]
pub struct Defaults {
    /// Startup timeout of sidecars whose pod and namespace have no annotation `remora.dev/await`, at most an hour.
    #[arg(id = "sidecar_await", long = "sidecar-await", value_name = "DURATION", default_value_t = StartupTimeout::DEFAULT, value_parser = wait)]
    pub(super) wait: StartupTimeout,
    /// Log level of sidecars whose pod and namespace have no annotation `remora.dev/log-level`: error, warn, info or
    /// debug.
    #[arg(id = "sidecar_log_level", long = "sidecar-log-level", value_name = "LEVEL", default_value = LOG_LEVEL, value_parser = log_level)]
    pub(super) log_level: &'static str,
    /// Let sidecars write their logs as JSON, one object per line, unless the annotation `remora.dev/log-json` of their
    /// pod or namespace is `false`. Default: text.
    #[arg(id = "sidecar_log_json", long = "sidecar-log-json")]
    pub(super) log_json: bool,
    /// CPU request of sidecars whose pod and namespace have no annotation `remora.dev/cpu-request`.
    #[arg(id = "sidecar_cpu_request", long = "sidecar-cpu-request", value_name = "AMOUNT", default_value = CPU_REQUEST, value_parser = cpu)]
    pub(super) cpu_request: String,
    /// CPU limit of sidecars whose pod and namespace have no annotation `remora.dev/cpu-limit`. Default: a limit only
    /// where all other containers have one.
    #[arg(id = "sidecar_cpu_limit", long = "sidecar-cpu-limit", value_name = "AMOUNT", value_parser = cpu)]
    pub(super) cpu_limit: Option<String>,
    /// Memory request of sidecars whose pod and namespace have no annotation `remora.dev/memory-request`.
    #[arg(id = "sidecar_memory_request", long = "sidecar-memory-request", value_name = "AMOUNT", default_value = MEMORY_REQUEST, value_parser = memory)]
    pub(super) memory_request: String,
}

/// Error: two defaults conflict.
#[derive(Debug, thiserror::Error)]
#[error(
    "--sidecar-cpu-request is {request}, above --sidecar-cpu-limit, which is {limit}: lower the request, or raise the limit"
)]
pub struct Conflict {
    request: String,
    limit: String,
}

/// The defaults as text: what the admission policies have in place of [`Defaults`], expressions of the chart's values.
#[derive(Clone, Copy, Debug)]
pub struct DefaultTexts<'a> {
    /// Startup timeout.
    pub wait: &'a str,
    /// Log level.
    pub log_level: &'a str,
    /// `true` or `false`.
    pub log_json: &'a str,
    /// CPU request.
    pub cpu_request: &'a str,
    /// CPU limit. Empty: a limit only where all other containers have one.
    pub cpu_limit: &'a str,
    /// Memory request.
    pub memory_request: &'a str,
}

const LOG_LEVEL: &str = "info";
/// CPU and, next, memory that a sidecar uses that answers occasionally.
const CPU_REQUEST: &str = "5m";
const MEMORY_REQUEST: &str = "8Mi";

impl Default for Defaults {
    fn default() -> Self {
        Self {
            wait: StartupTimeout::DEFAULT,
            log_level: LOG_LEVEL,
            log_json: false,
            cpu_request: CPU_REQUEST.to_owned(),
            cpu_limit: None,
            memory_request: MEMORY_REQUEST.to_owned(),
        }
    }
}

impl Defaults {
    /// Checks that the defaults fit together.
    ///
    /// # Errors
    ///
    /// Fails if the CPU request exceeds the CPU limit.
    pub fn check(&self) -> Result<(), Conflict> {
        let milli = |text: &str| quantity::CPU.read(text).as_ref().map(Quantity::milli);
        match &self.cpu_limit {
            Some(limit) if milli(&self.cpu_request) > milli(limit) => {
                Err(Conflict { request: self.cpu_request.clone(), limit: limit.clone() })
            }
            _ => Ok(()),
        }
    }
}

/// Adds what a valid value is to the error of an argument.
fn valid<T>(value: Option<T>, grammar: &str) -> Result<T, String> {
    value.ok_or_else(|| format!("write {grammar}"))
}

fn wait(text: &str) -> Result<StartupTimeout, String> {
    valid(StartupTimeout::parse(text), annotations::AWAIT)
}

fn log_level(text: &str) -> Result<&'static str, String> {
    valid(annotations::log_level(text), annotations::LOG_LEVEL)
}

fn cpu(text: &str) -> Result<String, String> {
    amount(text, &quantity::CPU, annotations::CPU)
}

fn memory(text: &str) -> Result<String, String> {
    amount(text, &quantity::MEMORY, annotations::MEMORY)
}

fn amount(text: &str, grammar: &Grammar, description: &str) -> Result<String, String> {
    valid(grammar.read(text).map(|amount| amount.to_string()), description)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        defaults: Defaults,
    }

    fn parse(line: &str) -> Result<Defaults, String> {
        let line = Line::try_parse_from(["run"].into_iter().chain(line.split_whitespace()));
        line.map(|line| line.defaults).map_err(|error| error.to_string())
    }

    #[test]
    fn empty_command_line_gives_the_defaults() {
        assert_eq!(format!("{:?}", parse("").unwrap()), format!("{:?}", Defaults::default()));
    }

    #[test]
    fn invalid_argument_is_refused_with_a_valid_value() {
        for (argument, valid) in [
            ("--sidecar-await=10", annotations::AWAIT),
            ("--sidecar-await=61m", annotations::AWAIT),
            ("--sidecar-log-level=trace", annotations::LOG_LEVEL),
            ("--sidecar-cpu-request=0", annotations::CPU),
            ("--sidecar-cpu-limit=", annotations::CPU),
            ("--sidecar-memory-request=3Mi", annotations::MEMORY),
        ] {
            let (option, value) = argument.split_once('=').unwrap();
            let error = parse(argument).unwrap_err();
            assert!(error.contains(option) && error.contains(valid), "{argument}: {error}");
            assert!(value.is_empty() || error.contains(&format!("'{value}'")), "{argument}: {error}");
        }
    }

    #[test]
    fn request_above_limit_is_a_conflict() {
        let check = |line: &str| parse(line).unwrap().check().map_err(|conflict| conflict.to_string());
        for line in ["", "--sidecar-cpu-request=2", "--sidecar-cpu-request=1 --sidecar-cpu-limit=1000m"] {
            assert_eq!(check(line), Ok(()), "{line}");
        }
        assert_eq!(
            check("--sidecar-cpu-request=0.3 --sidecar-cpu-limit=250m").unwrap_err(),
            "--sidecar-cpu-request is 0.3, above --sidecar-cpu-limit, which is 250m: lower the request, or raise the limit"
        );
    }
}
