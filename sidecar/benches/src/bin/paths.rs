//! Runs each important path once, for a profiler that counts instructions. `paths DIRECTORY` prints the names of the
//! paths in the order in which they run; the profiler counts within [`measured`]. Each path runs twice before it is
//! measured, so that its buffers have grown.

use std::cell::{Cell, RefCell};
use std::hint::black_box;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use remora_bench::operators::{OPERATORS, give_operands};
use remora_bench::profile::Profile;
use remora_bench::request::{compact_identity_body, context_body, identity_body};
use remora_bench::snapshots::{give_traits, read};
use remora_sidecar::Bodies;
use remora_snapshot::{RequestState, Role, Snapshot, files};

/// Runs a path that is counted. Never inlined, so that the profiler finds the function by its name.
#[inline(never)]
fn measured(path: &mut dyn FnMut()) {
    path();
    // A call at the very end would become a jump, and the profiler would not see the end of this function.
    black_box(());
}

struct Paths {
    directory: PathBuf,
    request: RequestState,
    out: Vec<u8>,
}

fn main() -> anyhow::Result<()> {
    let directory = std::env::args().nth(1).context("paths DIRECTORY")?.into();
    let mut paths = Paths { directory, request: RequestState::default(), out: Vec::new() };
    for profile in ["official", "medium"] {
        paths.load(profile, &format!("load {profile}"), 0)?;
    }
    paths.load("medium", "load medium with overrides", files::OVERRIDES_SLOTS)?;
    let official = paths.snapshot("official")?;
    paths.take("flags official", |_| (), |_, out| out.extend_from_slice(official.flags(Role::Client)))?;
    for profile in ["plain", "official", "medium"] {
        let snapshot = paths.snapshot(profile)?;
        paths.identify(&format!("identities {profile}"), &snapshot, 2_000_000)?;
    }
    // An identity override in an environment without segments: the difference from `plain` is the cost of the override.
    let overrides = paths.snapshot("overrides")?;
    paths.identify("override hit", &overrides, 17)?;
    paths.identify("override miss", &overrides, 2_000_000)?;
    for profile in ["official", "wide"] {
        let snapshot = paths.snapshot(profile)?;
        let name = Profile::feature(7);
        paths.ask(&format!("ofrep one flag {profile}"), &snapshot, "somebody", |request, out| {
            snapshot.write_ofrep_flag(request, Role::Client, &name, out);
        })?;
    }
    // The whole path of a body, by the fast path of the JSON reader.
    let identifier = Profile::identifier(2_000_000);
    for (name, body) in [
        ("body python official", identity_body(&identifier)),
        ("body compact official", compact_identity_body(&identifier)),
    ] {
        paths.body(name, |bodies, out| bodies.identities(body.as_bytes(), &official, out))?;
    }
    let context = context_body(&identifier);
    paths.body("body ofrep official", |bodies, out| bodies.ofrep(context.as_bytes(), &official, out))?;
    for operator in OPERATORS {
        let snapshot = paths.snapshot(operator)?;
        let ask = |request: &mut RequestState| {
            give_operands(&snapshot, request);
            snapshot.identify(request, "somebody");
        };
        paths.take(&format!("operator {operator}"), ask, |request, out| {
            snapshot.write_flags(request, Role::Client, out);
        })?;
        // If a condition did not match, another operator would have been counted.
        let out = String::from_utf8_lossy(&paths.out);
        ensure!(out.contains("\"matched\""), "{operator}: {out}");
    }
    Ok(())
}

impl Paths {
    fn snapshot(&self, profile: &str) -> anyhow::Result<Snapshot<Vec<u8>>> {
        read(&self.directory.join(profile))
    }

    /// Measures a path from an identity and its traits to the answer.
    fn identify(&mut self, name: &str, snapshot: &Snapshot<Vec<u8>>, number: usize) -> anyhow::Result<()> {
        self.ask(name, snapshot, &Profile::identifier(number), |request, out| {
            black_box(snapshot.write_flags(request, Role::Client, out));
        })
    }

    /// Measures a path from an identity and its traits to the output of `write`.
    fn ask(
        &mut self,
        name: &str,
        snapshot: &Snapshot<Vec<u8>>,
        identifier: &str,
        write: impl Fn(&mut RequestState, &mut Vec<u8>),
    ) -> anyhow::Result<()> {
        self.take(
            name,
            |_| (),
            |request, out| {
                give_traits(snapshot, request);
                snapshot.identify(request, identifier);
                write(request, out);
            },
        )
    }

    /// Measures a path from a body to its answer. The body must not be refused.
    fn body(&mut self, name: &str, path: impl Fn(&mut Bodies, &mut Vec<u8>) -> bool) -> anyhow::Result<()> {
        let bodies = RefCell::new(Bodies::default());
        let is_refused = Cell::new(false);
        self.take(name, |_| (), |_, out| is_refused.set(!path(&mut bodies.borrow_mut(), out)))?;
        ensure!(!is_refused.get(), "{name} is refused");
        Ok(())
    }

    /// Runs a path three times. Only the last run counts, without its preparation.
    fn take(
        &mut self,
        name: &str,
        prepare: impl Fn(&mut RequestState),
        path: impl Fn(&mut RequestState, &mut Vec<u8>),
    ) -> anyhow::Result<()> {
        let Self { request, out, .. } = self;
        for turn in 0..3 {
            request.clear();
            out.clear();
            prepare(request);
            let mut path = || {
                path(request, out);
                black_box(&out);
            };
            if turn < 2 { path() } else { measured(&mut path) }
        }
        ensure!(!out.is_empty(), "{name} gave nothing");
        writeln!(std::io::stdout(), "{name}")?;
        Ok(())
    }

    /// Reads a snapshot's core and the overrides files of the first slots, and checks everything in them.
    fn load(&self, profile: &str, name: &str, slots: usize) -> anyhow::Result<()> {
        let data = data(&self.directory.join(profile));
        let core = std::fs::read(data.join(files::CORE))?;
        let overrides = (0..slots).map(|slot| (slot, data.join(files::overrides(slot))));
        let overrides =
            overrides.filter(|(_, path)| path.exists()).map(|(slot, path)| Ok((slot, std::fs::read(path)?)));
        let overrides = overrides.collect::<std::io::Result<Vec<_>>>()?;
        ensure!(slots == 0 || !overrides.is_empty(), "{profile} has no overrides files");
        let mut read = None;
        measured(&mut || {
            let mut snapshot = Snapshot::read(core.as_slice()).ok();
            for (slot, file) in &overrides {
                snapshot = snapshot.and_then(|mut it| it.attach_to(*slot, file.as_slice()).ok().map(|()| it));
            }
            read = black_box(snapshot);
        });
        ensure!(read.is_some(), "{profile} is no snapshot");
        writeln!(std::io::stdout(), "{name}")?;
        Ok(())
    }
}

fn data(directory: &Path) -> PathBuf {
    directory.join(remora_bench::profile::ENVIRONMENT).join("..data")
}
