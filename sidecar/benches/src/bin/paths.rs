//! Takes each path that matters once, for a profiler that counts instructions. `paths DIRECTORY` prints their names in
//! the order in which they are taken; [`measured`] is what the profiler looks for. Before it is measured, a path is
//! taken twice, so that buffers have grown.

use std::hint::black_box;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use remora_bench::operators::{OPERATORS, give_operands};
use remora_bench::profile::Profile;
use remora_bench::snapshots::{give_traits, read};
use remora_snapshot::{Role, Snapshot, Subject, files};

/// What is counted: everything in here. Not inlined, so that there is something to be found by its name.
#[inline(never)]
fn measured(path: &mut dyn FnMut()) {
    path();
    // A call at the very end would become a jump, and nobody would see this function's end.
    black_box(());
}

struct Paths {
    directory: PathBuf,
    subject: Subject,
    out: Vec<u8>,
}

fn main() -> anyhow::Result<()> {
    let directory = std::env::args().nth(1).context("paths DIRECTORY")?.into();
    let mut paths = Paths { directory, subject: Subject::default(), out: Vec::new() };
    for profile in ["official", "medium"] {
        paths.load(profile)?;
    }
    let official = paths.snapshot("official")?;
    paths.take("flags official", |_| (), |_, out| out.extend_from_slice(official.flags(Role::Client)))?;
    for profile in ["plain", "official", "medium"] {
        let snapshot = paths.snapshot(profile)?;
        paths.identify(&format!("identities {profile}"), &snapshot, 2_000_000)?;
        // The same of somebody whose cohort was not here before.
        let identifier = Profile::identifier(2_000_000);
        paths.ask(&format!("put together {profile}"), &snapshot, &identifier, |subject, out| {
            snapshot.write_flags(subject, Role::Client, out);
        })?;
    }
    // An identity's own flag in an environment without segments: the difference to `plain` is the override.
    let overrides = paths.snapshot("overrides")?;
    paths.identify("override hit", &overrides, 17)?;
    paths.identify("override miss", &overrides, 2_000_000)?;
    for profile in ["official", "wide"] {
        let snapshot = paths.snapshot(profile)?;
        let name = Profile::feature(7);
        paths.ask(&format!("ofrep one flag {profile}"), &snapshot, "somebody", |subject, out| {
            snapshot.write_ofrep_flag(subject, Role::Client, &name, out);
        })?;
    }
    for operator in OPERATORS {
        let snapshot = paths.snapshot(operator)?;
        let ask = |subject: &mut Subject| {
            give_operands(&snapshot, subject);
            snapshot.identify(subject, "somebody");
        };
        paths.take(&format!("operator {operator}"), ask, |subject, out| {
            snapshot.write_flags(subject, Role::Client, out);
        })?;
        // All conditions held, or it was not this operator that was counted.
        let out = String::from_utf8_lossy(&paths.out);
        ensure!(out.contains("\"matched\""), "{operator}: {out}");
    }
    Ok(())
}

impl Paths {
    fn snapshot(&self, profile: &str) -> anyhow::Result<Snapshot<Vec<u8>>> {
        read(&self.directory.join(profile))
    }

    /// An identity and its traits, to the answer. What its cohort has is kept by then, as two came before.
    fn identify(&mut self, name: &str, snapshot: &Snapshot<Vec<u8>>, number: usize) -> anyhow::Result<()> {
        self.ask(name, snapshot, &Profile::identifier(number), |subject, out| {
            black_box(snapshot.finish_with_flags(subject, Role::Client, out));
        })
    }

    /// An identity and its traits, and what is written for them.
    fn ask(
        &mut self,
        name: &str,
        snapshot: &Snapshot<Vec<u8>>,
        identifier: &str,
        write: impl Fn(&mut Subject, &mut Vec<u8>),
    ) -> anyhow::Result<()> {
        self.take(
            name,
            |_| (),
            |subject, out| {
                give_traits(snapshot, subject);
                snapshot.identify(subject, identifier);
                write(subject, out);
            },
        )
    }

    /// Takes a path three times; the last one counts, without its preparation.
    fn take(
        &mut self,
        name: &str,
        prepare: impl Fn(&mut Subject),
        path: impl Fn(&mut Subject, &mut Vec<u8>),
    ) -> anyhow::Result<()> {
        let Self { subject, out, .. } = self;
        for turn in 0..3 {
            subject.clear();
            out.clear();
            prepare(subject);
            let mut path = || {
                path(subject, out);
                black_box(&out);
            };
            if turn < 2 { path() } else { measured(&mut path) }
        }
        ensure!(!out.is_empty(), "{name} gave nothing");
        writeln!(std::io::stdout(), "{name}")?;
        Ok(())
    }

    /// Reads a snapshot's files: everything in them is checked.
    fn load(&self, profile: &str) -> anyhow::Result<()> {
        let data = data(&self.directory.join(profile));
        let core = std::fs::read(data.join(files::CORE))?;
        let mut read = None;
        measured(&mut || read = black_box(Snapshot::read(core.as_slice()).ok()));
        ensure!(read.is_some(), "{profile} is no snapshot");
        writeln!(std::io::stdout(), "load {profile}")?;
        Ok(())
    }
}

fn data(directory: &Path) -> PathBuf {
    directory.join(remora_bench::profile::ENVIRONMENT).join("..data")
}
