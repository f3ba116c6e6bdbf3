//! Child process: sets its own limits, gives up all system calls that it does not need, reads a request from standard
//! input, and answers on standard output.

use std::{cell::RefCell, io};

use anyhow::Context as _;
use remora_compile::Progress;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::{confine::confine, frame, work::work};

/// Number of file descriptors: standard input, output and error. The child may open no other.
const DESCRIPTORS: u64 = 3;
/// Largest stack in bytes, also if the parent's limit is higher. Recursion is bounded, or exceeds this limit and ends
/// the child.
const STACK: u64 = 8 << 20;

/// Compile one document for `remora-operator controller`, which starts this process. Not for use by people.
#[derive(Debug, clap::Args)]
pub struct Child {
    /// Largest address space of the process, in bytes.
    #[arg(long)]
    memory_bytes: u64,
    /// Longest CPU time of the process, in seconds.
    #[arg(long)]
    cpu_seconds: u64,
}

impl Child {
    /// Compiles the document from standard input, and writes the answer to standard output.
    ///
    /// # Errors
    /// If a limit or the filter of system calls cannot be set, the request cannot be read, or the answer cannot be written.
    pub fn run(&self) -> anyhow::Result<()> {
        self.limit().context("cannot set the limits of the process")?;
        confine()?;
        let mut from = io::stdin().lock();
        let to = RefCell::new(io::stdout().lock());
        let head = frame::head(&mut from)?;
        // A failed write means that the parent has ended. The write of the answer then fails too.
        let report = |place: &str| drop(frame::write_progress(&mut *to.borrow_mut(), place));
        let pages = head.pages.iter().map(|length| frame::read_page(&mut from, *length));
        let (answer, files) = work(&head.task, pages, Progress::to(&report))?;
        Ok(frame::answer(&mut *to.borrow_mut(), &answer, &files)?)
    }

    fn limit(&self) -> rustix::io::Result<()> {
        // The soft limit ends the process with SIGXCPU, which tells the parent the reason. The hard limit kills a
        // process that ignores the signal.
        set(Resource::Cpu, self.cpu_seconds, self.cpu_seconds.saturating_add(1))?;
        for (resource, most) in [
            (Resource::As, self.memory_bytes),
            (Resource::Stack, STACK),
            (Resource::Core, 0),
            (Resource::Fsize, 0),
            (Resource::Nofile, DESCRIPTORS),
            // No further process or thread. The kernel does not apply this limit to root.
            (Resource::Nproc, 0),
        ] {
            set(resource, most, most)?;
        }
        Ok(())
    }
}

/// Lowers a resource limit. A limit that is already lower stays.
fn set(resource: Resource, soft: u64, hard: u64) -> rustix::io::Result<()> {
    let hard_limit = getrlimit(resource).maximum.unwrap_or(u64::MAX);
    setrlimit(resource, Rlimit { current: Some(soft.min(hard_limit)), maximum: Some(hard.min(hard_limit)) })
}
