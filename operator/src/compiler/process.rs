//! The parent's side of a child: starts it, talks to it, and sees to it that it ends.

use std::{
    io,
    path::Path,
    process::{ExitStatus, Stdio},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use rustix::process::Signal;
use std::os::unix::process::ExitStatusExt;
use tokio::{
    io::{AsyncRead, AsyncReadExt},
    process::{Child, Command},
    time::timeout,
};

use super::{
    Bounds, Request,
    error::{Error, Place},
    frame::{self, BadAnswer},
    message::{Answer, shown},
};
use crate::compile::File;

/// Bytes of what a child complains of that are kept.
const COMPLAINT_MAX: usize = 4 << 10;
/// How long a child whose pipes are closed may take to end before it is killed, and one that was killed to be gone.
const ENDING: Duration = Duration::from_secs(5);

/// How a child ended without an answer.
#[derive(Clone, Copy, Debug)]
enum Ending {
    /// Its time on the wall was over.
    Late,
    /// It wrote what is no answer.
    Wrote(&'static str),
    /// It ended by itself.
    Status(ExitStatus),
    /// Nobody knows.
    Unknown,
}

/// Starts a child, has it compile, and waits until it is gone.
pub(super) async fn run(program: &Path, bounds: &Bounds, request: Request) -> Result<(Answer, Vec<File>), Error> {
    let mut child = start(program, bounds).map_err(Error::NotStarted)?;
    let place = Mutex::new(Vec::new());
    let mut complaint = Vec::new();
    let talked = {
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        let answer = async {
            let stdout = stdout.ok_or(BadAnswer::Incomplete)?;
            frame::receive(stdout, |bytes| *place.lock().unwrap_or_else(PoisonError::into_inner) = bytes.to_vec()).await
        };
        let request = async {
            if let Some(stdin) = stdin {
                // A child that does not read has ended, or answers before the end: that is seen elsewhere.
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
    let place = place.into_inner().unwrap_or_else(PoisonError::into_inner);
    let place = Place(shown(&String::from_utf8_lossy(&place)));
    Err(explain(ending, &String::from_utf8_lossy(&complaint), place, bounds))
}

fn start(program: &Path, bounds: &Bounds) -> io::Result<Child> {
    Command::new(program)
        .arg0("remora-operator")
        .arg("compile-process")
        .arg(format!("--memory-bytes={}", bounds.memory))
        .arg(format!("--cpu-seconds={}", bounds.cpu.as_secs()))
        // What it needs comes through its standard input; credentials do not.
        .env_clear()
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
}

/// Reads to the end, and keeps the beginning.
async fn drain(from: &mut (impl AsyncRead + Unpin), kept: &mut Vec<u8>) {
    let mut bytes = [0; 1024];
    while let Ok(read @ 1..) = from.read(&mut bytes).await {
        let room = COMPLAINT_MAX.saturating_sub(kept.len()).min(read);
        kept.extend_from_slice(bytes.get(..room).unwrap_or_default());
    }
}

/// How a child that should end ended; none if it does not.
async fn wait(child: &mut Child) -> Option<ExitStatus> {
    timeout(ENDING, child.wait()).await.ok()?.ok()
}

/// Ends a child, whatever it is at, and takes it off the list of processes.
async fn kill(child: &mut Child) {
    // It has ended already, or this ends it: no process can refuse.
    let _ = child.start_kill();
    if wait(child).await.is_none() {
        tracing::warn!("a process that compiles was killed, and is not gone yet");
    }
}

/// What the end of a child means. Pure.
fn explain(ending: Ending, complaint: &str, place: Place, bounds: &Bounds) -> Error {
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
    // Words of Rust's own runtime, which says so before it aborts.
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

/// Where it panicked. The message itself may have a part of the document in it.
fn panicked(complaint: &str) -> String {
    let place = complaint.split_once("panicked at ").and_then(|(_, rest)| rest.lines().next());
    place.map_or_else(String::new, |place| format!(" ({})", shown(place.trim_end_matches(':'))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn explained(signal: i32, complaint: &str) -> Error {
        let place = Place("segment \"s\" (1)".to_owned());
        explain(Ending::Status(ExitStatus::from_raw(signal)), complaint, place, &Bounds::of(0, 64 << 20))
    }

    #[test]
    fn end_of_child_is_explained_by_its_signal_and_complaint() {
        for (signal, complaint, reason, says) in [
            (24, "", "CompileOutOfTime", "more than 10 s of CPU time"),
            (6, "memory allocation of 4096 bytes failed", "CompileOutOfMemory", "more than 256 MiB"),
            (6, "\nthread 'main' has overflowed its stack\n", "CompileCrashed", "overflowed its stack"),
            (11, "", "CompileCrashed", "overflowed its stack, or"),
            (9, "", "CompileCrashed", "killed by the system"),
            (6, "thread 'main' (1) panicked at src/a.rs:1:2:\ncanary", "CompileCrashed", "signal 6 (src/a.rs:1:2)"),
            (
                101 << 8,
                "thread 'main' panicked at src/a.rs:1:2:\ncanary",
                "CompileCrashed",
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
