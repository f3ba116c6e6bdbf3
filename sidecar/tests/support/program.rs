//! The sidecar as a process.

use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader, Lines};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};

use super::client::Connection;

/// A running sidecar, which ends with this value.
pub(crate) struct Program {
    child: Child,
    pub(crate) data: SocketAddr,
    pub(crate) admin: SocketAddr,
    lines: Vec<String>,
    /// The log is read only after the process has ended, which is possible because it is short.
    log: Lines<BufReader<ChildStderr>>,
}

/// Command of the program over a directory of snapshots, on free ports.
pub(crate) fn sidecar(snapshots: &Path) -> Command {
    sidecar_by(&[], snapshots)
}

/// The same command, started by another program.
pub(crate) fn sidecar_by(starter: &[&str], snapshots: &Path) -> Command {
    let mut words = starter.iter().map(OsStr::new).chain([OsStr::new(env!("CARGO_BIN_EXE_remora-sidecar"))]);
    let mut command = Command::new(words.next().unwrap());
    command.args(words).arg("--snapshots").arg(snapshots);
    command.args(["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]);
    command
}

/// Returns the command of the program in its own mount namespace, where the volumes are mounted read-only: for this
/// process, and for no other.
pub(crate) fn read_only(snapshots: &Path) -> Command {
    let script = "mount --bind \"$DIRECTORY\" \"$DIRECTORY\" && mount -o remount,bind,ro \"$DIRECTORY\" && exec \"$@\"";
    let mut command = sidecar_by(&["unshare", "-Urm", "sh", "-c", script, "sh"], snapshots);
    command.env("DIRECTORY", snapshots);
    command
}

impl Program {
    pub(crate) fn start(mut command: Command) -> Program {
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut lines = Vec::new();
        let (data, admin) = loop {
            let line = log.next().unwrap_or_else(|| panic!("it ended: {lines:#?}")).unwrap();
            if let Some((_, addresses)) = line.split_once("flags on ") {
                let (data, admin) = addresses.split_once(", health and metrics on ").unwrap();
                break (data.parse().unwrap(), admin.parse().unwrap());
            }
            lines.push(line);
        };
        Program { child, data, admin, lines, log }
    }

    /// Kills the process, and returns its log lines.
    pub(crate) fn stop(mut self) -> Vec<String> {
        let _ = self.child.kill();
        let mut lines = std::mem::take(&mut self.lines);
        lines.extend(self.log.by_ref().map_while(Result::ok));
        lines
    }

    /// Sends SIGTERM, and waits until the process has ended.
    pub(crate) fn terminate(&mut self) -> ExitStatus {
        assert!(Command::new("kill").arg(self.child.id().to_string()).status().unwrap().success());
        self.child.wait().unwrap()
    }

    /// True while the process runs.
    pub(crate) fn is_alive(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Limits the process to this many file descriptors beside those that it has.
    pub(crate) fn limit_files(&self, further: usize) {
        let process = self.child.id();
        let used = std::fs::read_dir(format!("/proc/{process}/fd")).unwrap();
        let used: Vec<usize> =
            used.map(|entry| entry.unwrap().file_name().to_str().unwrap().parse().unwrap()).collect();
        // The limit bounds the numbers of descriptors, and the lowest free number is used first.
        let limit = 1 + (0..).filter(|number| !used.contains(number)).nth(further - 1).unwrap();
        let (process, limit) = (process.to_string(), format!("--nofile={limit}:"));
        assert!(Command::new("prlimit").args(["--pid", &process, &limit]).status().unwrap().success());
    }

    /// A line of `/proc/PID/status`: memory of the process in bytes.
    pub(crate) fn memory(&self, line: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let value = status.lines().find_map(|text| text.strip_prefix(line)?.strip_prefix(':')).unwrap();
        value.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() * 1024
    }

    pub(crate) fn connect(&self) -> Connection {
        Connection::open(self.data)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
