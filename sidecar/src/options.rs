//! The command line.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use remora_snapshot::{FlagOverride, OverriddenBy, duration};

use crate::log::Level;
use crate::overrides;

/// Text that `--help` prints.
pub const HELP: &str = "\
Answers feature flags on localhost, from mapped snapshots.

Usage: remora-sidecar --snapshots DIR [options]

  --snapshots DIR         directory with one sub-directory for each environment: a volume of
                          Kubernetes, or the output of `remora-operator compile --output DIR`
  --environment NAME      serve this environment even while its sub-directory is missing;
                          may be repeated (default: every sub-directory)
  --listen ADDRESS        loopback address that answers flags (default: 127.0.0.1:4777)
  --listen-unix PATH      create a Unix socket at PATH that answers flags, too (default: none)
  --cors-origin ORIGIN    let pages of this origin read answers in a browser, for example
                          http://localhost:3000; * allows every origin; may be repeated
                          (default: none)
  --admin ADDRESS         address that answers health checks and metrics
                          (default: 127.0.0.1:4778)
  --await DURATION        startup timeout: how long /startupz answers 503 while data is missing,
                          for example 10s, 500ms or 1m30s (default: 10s)
  --overrides JSON        answer these flags, at most 16, with another state or value, for tests:
                          {\"NAME\": {\"enabled\": true, \"value\": \"x\"}} (default: none)
  --override-key FILE     let requests override flags for themselves by the header
                          X-Remora-Override, signed with the key in FILE, of 32 to 256 bytes
                          (default: the header is not read)
  --log-level LEVEL       least severe level to log: error, warn, info or debug (default: info)
  --log-json              write the log as JSON, one object per line, with the members timestamp,
                          level and message (default: text)
  --probe ADDRESS         serve nothing: ask the sidecar with this admin address for up to one
                          second whether the application may start, and exit with 0 if so
  --help                  print this text
  --version               print the version
";

/// Action that the command line selects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Serves flags.
    Serve(Options),
    /// Asks the sidecar with this admin port if the application may start.
    Probe(SocketAddr),
    /// Prints the help.
    Help,
    /// Prints the version.
    Version,
}

/// Options of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Directory of the volumes.
    pub snapshots: PathBuf,
    /// Names of environments that are served even while their volume is missing.
    pub environments: Vec<String>,
    /// Address of the data port, which answers flags.
    pub listen: SocketAddr,
    /// Path of a Unix socket that answers flags, too.
    pub listen_unix: Option<PathBuf>,
    /// Origins whose pages browsers let read answers. `*` stands for any.
    pub cors_origins: Vec<String>,
    /// Address of the admin port, which answers health and metrics.
    pub admin: SocketAddr,
    /// Startup timeout: `/startupz` lets the application start after this time even if data is missing.
    pub startup_timeout: Duration,
    /// Flags that are answered with another state or value.
    pub overrides: Vec<FlagOverride>,
    /// File with the key of headers by which requests override flags for themselves. `None` if the headers are not read.
    pub override_key: Option<PathBuf>,
    /// Level up to which lines are logged.
    pub level: Level,
    /// True if the log is JSON, false if it is text.
    pub log_json: bool,
}

impl Options {
    /// Creates options with the defaults.
    #[must_use]
    pub fn new(snapshots: PathBuf) -> Options {
        Options {
            snapshots,
            environments: Vec::new(),
            listen: SocketAddr::from(([127, 0, 0, 1], 4777)),
            listen_unix: None,
            cors_origins: Vec::new(),
            admin: SocketAddr::from(([127, 0, 0, 1], 4778)),
            startup_timeout: Duration::from_secs(10),
            overrides: Vec::new(),
            override_key: None,
            level: Level::Info,
            log_json: false,
        }
    }
}

/// Reason why a command line is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UsageError {
    /// The argument is not UTF-8.
    #[error("argument {0:?} is not UTF-8: write it in UTF-8, and rename the directory or socket that it names")]
    NotUtf8(OsString),
    /// The option does not exist.
    #[error("option {0:?} does not exist: --help lists all options")]
    Unknown(String),
    /// The option lacks its value.
    #[error("{0} needs a value: write {0} {1}")]
    NoValue(&'static str, &'static str),
    /// The option has a value and takes none.
    #[error("{0} takes no value: remove \"={1}\"")]
    NeedlessValue(&'static str, String),
    /// The option has an invalid value.
    #[error("{option} {value:?} is not {expected}")]
    BadValue {
        /// Name of the option.
        option: &'static str,
        /// Value on the command line.
        value: String,
        /// Description of a valid value.
        expected: &'static str,
    },
    /// The address would open the data port to the network.
    #[error(
        "--listen {0} would answer flags to the network: write a loopback address, such as 127.0.0.1:{port}",
        port = .0.port()
    )]
    NotLoopback(SocketAddr),
    /// The only option without a default is missing.
    #[error("--snapshots is missing: write --snapshots DIR, with one sub-directory for each environment")]
    NoSnapshots,
}

/// Parses a command line without the program's name.
///
/// # Errors
/// The first invalid argument.
pub fn parse(arguments: impl IntoIterator<Item = String>) -> Result<Command, UsageError> {
    let mut options = Options::new(PathBuf::new());
    let mut arguments = arguments.into_iter();
    while let Some(argument) = arguments.next() {
        let (name, inline) = match argument.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (argument.as_str(), None),
        };
        let mut value =
            |option, example| inline.clone().or_else(|| arguments.next()).ok_or(UsageError::NoValue(option, example));
        match name {
            "--snapshots" => options.snapshots = value("--snapshots", "DIR")?.into(),
            "--environment" => options.environments.push(environment(value("--environment", "NAME")?)?),
            "--listen" => options.listen = address("--listen", value("--listen", "127.0.0.1:4777")?)?,
            "--listen-unix" => options.listen_unix = Some(socket(value("--listen-unix", "PATH")?)?),
            "--cors-origin" => options.cors_origins.push(origin(value("--cors-origin", "ORIGIN")?)?),
            "--admin" => options.admin = address("--admin", value("--admin", "127.0.0.1:4778")?)?,
            "--await" => options.startup_timeout = time(value("--await", "10s")?)?,
            "--overrides" => options.overrides = flags(value("--overrides", "{}")?)?,
            "--override-key" => options.override_key = Some(value("--override-key", "FILE")?.into()),
            "--log-level" => options.level = level(value("--log-level", "info")?)?,
            "--log-json" => match inline {
                None => options.log_json = true,
                Some(value) => return Err(UsageError::NeedlessValue("--log-json", value)),
            },
            "--probe" => return Ok(Command::Probe(address("--probe", value("--probe", "127.0.0.1:4778")?)?)),
            "--help" | "-h" => return Ok(Command::Help),
            "--version" => return Ok(Command::Version),
            _ => return Err(UsageError::Unknown(argument)),
        }
    }
    if options.snapshots.as_os_str().is_empty() {
        return Err(UsageError::NoSnapshots);
    }
    if !options.listen.ip().is_loopback() {
        return Err(UsageError::NotLoopback(options.listen));
    }
    Ok(Command::Serve(options))
}

fn environment(value: String) -> Result<String, UsageError> {
    if value.is_empty() || value.starts_with('.') || value.contains('/') {
        let expected = "the name of a FeatureEnvironment and of a directory";
        return Err(UsageError::BadValue { option: "--environment", value, expected });
    }
    Ok(value)
}

fn socket(value: String) -> Result<PathBuf, UsageError> {
    // The kernel's limit is 108 bytes, including the null at the end.
    if value.is_empty() || value.len() > 107 {
        return Err(UsageError::BadValue { option: "--listen-unix", value, expected: "a path of at most 107 bytes" });
    }
    Ok(value.into())
}

fn origin(value: String) -> Result<String, UsageError> {
    let host = value.strip_prefix("http://").or_else(|| value.strip_prefix("https://"));
    if value != "*" && !host.is_some_and(|host| !host.is_empty() && !host.contains('/')) {
        let expected =
            "an origin as browsers send it, such as http://localhost:3000 (without a slash at its end), or *";
        return Err(UsageError::BadValue { option: "--cors-origin", value, expected });
    }
    Ok(value)
}

fn address(option: &'static str, value: String) -> Result<SocketAddr, UsageError> {
    let expected = "an address and a port, such as 127.0.0.1:4777";
    value.parse().map_err(|_| UsageError::BadValue { option, value, expected })
}

/// The form of a duration.
const DURATION: &str = "a duration, such as 10s, 500ms or 1m30s";

fn time(value: String) -> Result<Duration, UsageError> {
    duration::parse(&value).ok_or(UsageError::BadValue { option: "--await", value, expected: DURATION })
}

fn flags(value: String) -> Result<Vec<FlagOverride>, UsageError> {
    let read = overrides::read(&value, OverriddenBy::Pod);
    read.ok_or(UsageError::BadValue { option: "--overrides", value, expected: overrides::GRAMMAR })
}

fn level(value: String) -> Result<Level, UsageError> {
    let expected = "error, warn, info or debug";
    value.parse().map_err(|()| UsageError::BadValue { option: "--log-level", value, expected })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Command, UsageError> {
        parse(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn complete_command_line_sets_every_option() {
        let line = "--snapshots /s --environment a --environment=b --listen [::1]:1 --admin=[::]:2 --await 500ms --log-level debug --log-json --listen-unix /s/x --cors-origin http://localhost:3000 --cors-origin * --overrides {\"a\":{\"enabled\":true}} --override-key /s/key";
        let Ok(Command::Serve(options)) = read(line) else { panic!("{:?}", read(line)) };
        assert_eq!(options.snapshots, PathBuf::from("/s"));
        assert_eq!(options.environments, ["a", "b"]);
        assert_eq!(options.listen.to_string(), "[::1]:1");
        assert_eq!(options.listen_unix, Some(PathBuf::from("/s/x")));
        assert_eq!(options.cors_origins, ["http://localhost:3000", "*"]);
        assert_eq!(options.admin.to_string(), "[::]:2");
        assert_eq!(options.startup_timeout, Duration::from_millis(500));
        let expected = FlagOverride { flag: "a".to_owned(), enabled: Some(true), value: None, by: OverriddenBy::Pod };
        assert_eq!(options.overrides, [expected]);
        assert_eq!(options.override_key, Some(PathBuf::from("/s/key")));
        assert_eq!(options.level, Level::Debug);
        assert!(options.log_json);
    }

    #[test]
    fn short_command_line_uses_the_defaults() {
        assert_eq!(read("--snapshots x"), Ok(Command::Serve(Options::new("x".into()))));
        assert_eq!(read("--probe 127.0.0.1:5001"), Ok(Command::Probe(SocketAddr::from(([127, 0, 0, 1], 5001)))));
        assert_eq!(read("--help"), Ok(Command::Help));
        assert_eq!(read("--version"), Ok(Command::Version));
        for option in HELP.lines().filter_map(|line| line.trim().strip_prefix("--")) {
            let name = option.split(' ').next().unwrap();
            assert!(!matches!(read(&format!("--{name}")), Err(UsageError::Unknown(_))), "--{name}");
        }
    }

    #[test]
    fn invalid_argument_is_refused_with_the_remedy() {
        for (line, part) in [
            ("", "--snapshots is missing"),
            ("--snapshots", "write --snapshots DIR"),
            ("--snapshots x --lisen y", "option \"--lisen\" does not exist"),
            ("--snapshots x --listen 0.0.0.0:4777", "127.0.0.1:4777"),
            ("--snapshots x --listen localhost", "such as 127.0.0.1:4777"),
            ("--snapshots x --await 10", "such as 10s"),
            ("--snapshots x --await 10s1m", "such as 10s"),
            ("--snapshots x --log-level loud", "error, warn, info or debug"),
            ("--snapshots x --log-json=true", "--log-json takes no value: remove \"=true\""),
            ("--snapshots x --overrides {\"a\":1}", "such as {\"banner\": {\"enabled\": true"),
            ("--snapshots x --cors-origin http://localhost:3000/", "without a slash at its end"),
            ("--snapshots x --cors-origin localhost", "such as http://localhost:3000"),
            ("--snapshots x --environment ../y", "the name of a FeatureEnvironment"),
        ] {
            let error = read(line).unwrap_err().to_string();
            assert!(error.contains(part), "{line}: {error}");
        }
    }
}
