//! Parent's side of a child process: starts it, exchanges messages with it, and makes sure that it ends.

use std::{
    io,
    path::Path,
    process::{ExitStatus, Stdio},
    time::Duration,
};

use parking_lot::Mutex;
use remora_compile::{File, document::printable};
use rustix::process::Signal;
use std::os::unix::process::ExitStatusExt;
use tokio::{
    io::{AsyncRead, AsyncReadExt},
    process::{Child, Command},
    time::timeout,
};

use super::{
    Bounds, Request,
    error::{DocumentPlace, Error},
    frame::{self, BadAnswer},
    message::{ChildAnswer, SHOWN},
};

/// Largest number of bytes of a child's standard error that are kept.
const COMPLAINT_MAX: usize = 4 << 10;
/// Time that a child may take to end after its pipes are closed, before it is killed. Also the longest wait for a
/// killed child.
const ENDING: Duration = Duration::from_secs(5);

/// Way in which a child ended without an answer.
#[derive(Clone, Copy, Debug)]
enum Ending {
    /// The child exceeded its wall-clock time.
    Late,
    /// The child wrote something that is not an answer.
    Wrote(&'static str),
    /// The child ended with this status.
    Status(ExitStatus),
    /// The parent does not know how the child ended.
    Unknown,
}

/// Starts a child, sends it the request, and waits until the child has ended.
pub(super) async fn run(program: &Path, bounds: &Bounds, request: Request) -> Result<(ChildAnswer, Vec<File>), Error> {
    let mut child = start(program, bounds).map_err(Error::NotStarted)?;
    let place = Mutex::new(Vec::new());
    let mut complaint = Vec::new();
    let talked = {
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        let answer = async {
            let stdout = stdout.ok_or(BadAnswer::Incomplete)?;
            frame::receive(stdout, |bytes| *place.lock() = bytes.to_vec()).await
        };
        let request = async {
            if let Some(stdin) = stdin {
                // A failed write means that the child has ended, or has answered before it read everything. The read of
                // the answer finds out which.
                let _ = frame::send(stdin, request).await;
            }
            Ok(())
        };
        let stderr = child.stderr.as_mut();
        let complaint = async {
            if let Some(stderr) = stderr {
                drain(stderr, &mut complaint).await;
            }
            Ok(())
        };
        timeout(bounds.wall, async { tokio::try_join!(answer, request, complaint) }).await
    };
    let ending = match talked {
        Ok(Ok((answer, (), ()))) => match wait(&mut child).await {
            Some(status) if status.success() => return Ok(answer),
            Some(status) => Ending::Status(status),
            None => Ending::Unknown,
        },
        Ok(Err(BadAnswer::Incomplete)) => wait(&mut child).await.map_or(Ending::Unknown, Ending::Status),
        Ok(Err(BadAnswer::Malformed(what))) => Ending::Wrote(what),
        Err(_) => Ending::Late,
    };
    kill(&mut child).await;
    if let Some(stderr) = &mut child.stderr {
        let _ = timeout(ENDING, drain(stderr, &mut complaint)).await;
    }
    let place = place.into_inner();
    let place = DocumentPlace(printable(&String::from_utf8_lossy(&place), SHOWN));
    Err(explain(ending, &String::from_utf8_lossy(&complaint), place, bounds))
}

fn start(program: &Path, bounds: &Bounds) -> io::Result<Child> {
    Command::new(program)
        .arg0("remora-operator")
        .arg("compile-process")
        .arg(format!("--memory-bytes={}", bounds.memory))
        .arg(format!("--cpu-seconds={}", bounds.cpu.as_secs()))
        // The child gets its input on standard input. It must not get credentials.
        .env_clear()
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
}

/// Reads to the end, and keeps the first [`COMPLAINT_MAX`] bytes.
async fn drain(from: &mut (impl AsyncRead + Unpin), kept: &mut Vec<u8>) {
    let mut bytes = [0; 1024];
    while let Ok(read @ 1..) = from.read(&mut bytes).await {
        let room = COMPLAINT_MAX.saturating_sub(kept.len()).min(read);
        kept.extend_from_slice(bytes.get(..room).unwrap_or_default());
    }
}

/// Waits for a child that should end. `None` if it does not end within [`ENDING`].
async fn wait(child: &mut Child) -> Option<ExitStatus> {
    timeout(ENDING, child.wait()).await.ok()?.ok()
}

/// Kills a child in any state, and reaps it.
async fn kill(child: &mut Child) {
    // An error means that the child has already ended: no process can refuse this signal.
    let _ = child.start_kill();
    if wait(child).await.is_none() {
        tracing::warn!("a process that compiles was killed, and is not gone yet");
    }
}

/// Translates the end of a child to an error. Pure.
fn explain(ending: Ending, complaint: &str, place: DocumentPlace, bounds: &Bounds) -> Error {
    let crashed = |how: String, place| Error::Crashed { how, place };
    let memory = |place| Error::Memory { limit: bounds.memory >> 20, place };
    let status = match ending {
        Ending::Late => {
            return Error::Time {
                limit: bounds.wall.as_secs(),
                clock: "time (on a busy node, a part of a core)",
                place,
            };
        }
        Ending::Wrote(what) => return crashed(what.to_owned(), place),
        Ending::Unknown => return crashed("ended in an unknown way".to_owned(), place),
        Ending::Status(status) => status,
    };
    // Rust's runtime prints these words before it aborts.
    let overflowed = complaint.contains("has overflowed its stack");
    match status.signal() {
        Some(signal) if signal == Signal::XCPU.as_raw() => {
            Error::Time { limit: bounds.cpu.as_secs(), clock: "CPU time", place }
        }
        Some(signal) if signal == Signal::ABORT.as_raw() && complaint.contains("memory allocation of ") => {
            memory(place)
        }
        Some(_) if overflowed => crashed("overflowed its stack".to_owned(), place),
        Some(signal) if signal == Signal::SEGV.as_raw() || signal == Signal::BUS.as_raw() => {
            crashed("overflowed its stack, or had no memory for it".to_owned(), place)
        }
        Some(signal) if signal == Signal::KILL.as_raw() => {
            crashed("was killed by the system, probably for want of memory on the node".to_owned(), place)
        }
        Some(signal) => crashed(format!("was ended by signal {signal}{}", panicked(complaint)), place),
        None => crashed(format!("ended with status {}{}", status.code().unwrap_or(-1), panicked(complaint)), place),
    }
}

/// Returns the source location of a panic. The panic message is left out, because it may contain a part of the
/// document.
fn panicked(complaint: &str) -> String {
    let place = complaint.split_once("panicked at ").and_then(|(_, rest)| rest.lines().next());
    place.map_or_else(String::new, |place| format!(" ({})", printable(place.trim_end_matches(':'), SHOWN)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::Reason;

    fn explained(signal: i32, complaint: &str) -> Error {
        let place = DocumentPlace("segment \"s\" (1)".to_owned());
        explain(Ending::Status(ExitStatus::from_raw(signal)), complaint, place, &Bounds::of(0, 64 << 20))
    }

    #[test]
    fn exit_of_child_is_explained_by_signal_and_standard_error() {
        for (signal, complaint, reason, says) in [
            (24, "", Reason::CompileOutOfTime, "more than 10 s of CPU time"),
            (6, "memory allocation of 4096 bytes failed", Reason::CompileOutOfMemory, "more than 256 MiB"),
            (6, "\nthread 'main' has overflowed its stack\n", Reason::CompileCrashed, "overflowed its stack"),
            (11, "", Reason::CompileCrashed, "overflowed its stack, or"),
            (9, "", Reason::CompileCrashed, "killed by the system"),
            (
                6,
                "thread 'main' (1) panicked at src/a.rs:1:2:\ncanary",
                Reason::CompileCrashed,
                "signal 6 (src/a.rs:1:2)",
            ),
            (
                101 << 8,
                "thread 'main' panicked at src/a.rs:1:2:\ncanary",
                Reason::CompileCrashed,
                "status 101 (src/a.rs:1:2)",
            ),
        ] {
            let error = explained(signal, complaint);
            let text = error.to_string();
            assert_eq!(error.reason(), reason, "{signal} {complaint}");
            assert!(
                text.contains(says) && text.contains("at: segment \"s\" (1)") && !text.contains("canary"),
                "{text}"
            );
        }
    }
}
