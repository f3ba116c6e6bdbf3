//! A server that is measured: alone on its core, and observed from outside.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::ops::Range;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{CpuSet, sched_setaffinity};

use crate::load::ask;

/// Core of the measured server, and core of everything else.
pub(crate) const SERVER_CORE: usize = 0;
pub(crate) const OTHER_CORE: usize = 1;

/// Pins this thread, and the threads and processes that it starts, to one core.
fn stay_on(core: usize) -> anyhow::Result<()> {
    let mut set = CpuSet::new();
    set.set(core);
    sched_setaffinity(None, &set).context("two cores are needed: one for the server, one for its load")
}

/// Pins everything except servers to the other core.
///
/// # Errors
/// The machine has no second core.
pub fn leave_the_servers_core() -> anyhow::Result<()> {
    stay_on(OTHER_CORE)
}

/// A server process, which ends with this value.
pub struct Server {
    process: Child,
    /// Address of the data port.
    pub address: SocketAddr,
    /// Address of the admin port. Servers without one have the same address as the data port.
    pub admin: SocketAddr,
}

/// Memory of a process in kilobytes.
#[derive(Debug, Clone, Copy, Default)]
pub struct Memory {
    /// Private memory: heap, stacks, and relocated data.
    pub private: u64,
    /// Resident memory, including mapped files and the program.
    pub resident: u64,
}

impl Server {
    /// Starts the sidecar for a directory of snapshots.
    ///
    /// # Errors
    /// The sidecar does not start.
    pub fn sidecar(program: &Path, snapshots: &Path) -> anyhow::Result<Self> {
        Self::sidecar_by(Command::new(program), snapshots)
    }

    /// Starts the sidecar by this command, to which the arguments are added.
    ///
    /// # Errors
    /// The sidecar does not start.
    pub fn sidecar_by(mut command: Command, snapshots: &Path) -> anyhow::Result<Self> {
        let (address, admin) = (free_port()?, free_port()?);
        command.arg("--snapshots").arg(snapshots).args(["--listen", &address.to_string()]);
        command.args(["--admin", &admin.to_string(), "--log-level", "warn"]);
        Self::start(command, address, admin)
    }

    /// Starts the bare hyper server, which answers every request with `status` and `bytes` bytes.
    ///
    /// # Errors
    /// The server does not start.
    pub fn limit(program: &Path, status: u16, bytes: usize, tag: &str) -> anyhow::Result<Self> {
        let address = free_port()?;
        let mut command = Command::new(program);
        command.args([&address.to_string(), &status.to_string(), &bytes.to_string(), tag]);
        Self::start(command, address, address)
    }

    /// Starts the server that serializes a document for each request.
    ///
    /// # Errors
    /// The server does not start.
    pub fn serializing(program: &Path, document: &Path) -> anyhow::Result<Self> {
        let address = free_port()?;
        let mut command = Command::new(program);
        command.arg(address.to_string()).arg(document);
        Self::start(command, address, address)
    }

    fn start(mut command: Command, address: SocketAddr, admin: SocketAddr) -> anyhow::Result<Self> {
        stay_on(SERVER_CORE)?;
        let process = command.stdin(Stdio::null()).spawn().with_context(|| format!("cannot start {command:?}"));
        leave_the_servers_core()?;
        Ok(Self { process: process?, address, admin })
    }

    /// Waits until a request is answered with `status`. Returns the time since `since`.
    ///
    /// # Errors
    /// No such answer arrives within ten seconds.
    pub fn wait(&mut self, request: &[u8], status: u16, since: Instant) -> anyhow::Result<Duration> {
        loop {
            if let Ok(answer) = ask(self.address, request)
                && answer.status == status
            {
                return Ok(since.elapsed());
            }
            ensure!(since.elapsed() < Duration::from_secs(10), "no answer from the server for ten seconds");
            let ended = self.process.try_wait()?;
            ensure!(ended.is_none(), "the server ended: {ended:?}");
        }
    }

    /// Sends SIGTERM, as Kubernetes does, and waits for the exit, so that everything the process writes at its end is
    /// complete.
    ///
    /// # Errors
    /// The process exits with a failure.
    pub fn end(mut self) -> anyhow::Result<()> {
        kill_process(Pid::from_child(&self.process), Signal::TERM)?;
        let status = self.process.wait()?;
        ensure!(status.success(), "the server ended with {status}");
        Ok(())
    }

    /// Returns the current memory usage.
    ///
    /// # Errors
    /// The kernel does not report it.
    pub fn memory(&self) -> anyhow::Result<Memory> {
        let text = std::fs::read_to_string(format!("/proc/{}/smaps_rollup", self.process.id()))?;
        let field = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
            line.trim().trim_end_matches(" kB").trim().parse().unwrap_or_default()
        };
        Ok(Memory { private: field("Anonymous:"), resident: field("Rss:") })
    }

    /// Returns the time for which the first thread, which serves, has run on a core.
    ///
    /// # Errors
    /// The kernel does not report it.
    pub fn time_on_core(&self) -> anyhow::Result<Duration> {
        let text = std::fs::read_to_string(format!("/proc/{}/schedstat", self.process.id()))?;
        let nanoseconds =
            text.split(' ').next().unwrap_or_default().parse().context("the kernel keeps no schedstat")?;
        Ok(Duration::from_nanos(nanoseconds))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Ports below Linux's ephemeral ports and below the node ports of Kubernetes: no client gets one of these before a
/// server binds it.
const PORTS: Range<u16> = 20_000..30_000;

fn free_port() -> anyhow::Result<SocketAddr> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    for _ in PORTS {
        // Each process starts at another port, because others may measure at the same time.
        let number =
            std::process::id().wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % u32::from(PORTS.end - PORTS.start);
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, PORTS.start + u16::try_from(number)?));
        if TcpListener::bind(address).is_ok() {
            return Ok(address);
        }
    }
    bail!("no port of {PORTS:?} is free")
}
