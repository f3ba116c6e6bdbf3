//! The child: bounds itself, reads a request from standard input, answers on standard output.

use std::{cell::RefCell, io};

use anyhow::Context as _;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::{frame, work::work};
use crate::compile::Progress;

/// Standard input, output and error, and none else may be opened.
const DESCRIPTORS: u64 = 3;
/// Bytes of stack, wherever the parent has more: what recurses is bounded, or ends.
const STACK: u64 = 8 << 20;

/// What `remora-operator run` starts for each document; of no use to people.
#[derive(Debug, clap::Args)]
pub struct Child {
    /// The address space that it may have, in bytes.
    #[arg(long)]
    memory_bytes: u64,
    /// The CPU time that it may take, in seconds.
    #[arg(long)]
    cpu_seconds: u64,
}

impl Child {
    /// Compiles the document that standard input has.
    ///
    /// # Errors
    /// If the limits cannot be set, or a pipe breaks.
    pub fn run(&self) -> anyhow::Result<()> {
        self.limit().context("the limits of the process cannot be set")?;
        let mut from = io::stdin().lock();
        let to = RefCell::new(io::stdout().lock());
        let head = frame::head(&mut from)?;
        // A parent that does not hear it is gone, which the answer finds out.
        let tell = |place: &str| drop(frame::tell(&mut *to.borrow_mut(), place));
        let pages = head.pages.iter().map(|length| frame::read_page(&mut from, *length));
        let (answer, files) = work(&head.task, pages, Progress::to(&tell))?;
        Ok(frame::answer(&mut *to.borrow_mut(), &answer, &files)?)
    }

    fn limit(&self) -> rustix::io::Result<()> {
        // The signal of the soft limit ends the process, and says what for; the hard one is for whoever ignores it.
        set(Resource::Cpu, self.cpu_seconds, self.cpu_seconds.saturating_add(1))?;
        for (resource, most) in [
            (Resource::As, self.memory_bytes),
            (Resource::Stack, STACK),
            (Resource::Core, 0),
            (Resource::Fsize, 0),
            (Resource::Nofile, DESCRIPTORS),
            // No other process and no thread, where it is not root that asks.
            (Resource::Nproc, 0),
        ] {
            set(resource, most, most)?;
        }
        Ok(())
    }
}

/// Lowers a limit; one that is lower stays.
fn set(resource: Resource, soft: u64, hard: u64) -> rustix::io::Result<()> {
    let held = getrlimit(resource).maximum.unwrap_or(u64::MAX);
    setrlimit(resource, Rlimit { current: Some(soft.min(held)), maximum: Some(hard.min(held)) })
}
