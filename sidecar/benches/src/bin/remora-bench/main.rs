//! Prints the cost of Remora as a table. `make bench` builds the measured programs and runs this one.

mod compile;
mod documents;
mod memory;
mod peer;
mod ratios;
mod start;
mod swap;
mod tail;
mod train;

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use remora_bench::prepared::Prepared;
use remora_bench::profile::{LARGE, LEGAL_MAXIMUM, LIST, MEDIUM, PLAIN, WIDE, official};
use remora_bench::server::leave_the_servers_core;
use remora_bench::table::{Table, Target};

/// Paths of the measured programs, built as they are shipped.
struct Programs {
    sidecar: PathBuf,
    limit: PathBuf,
    peer: PathBuf,
    serialize: PathBuf,
}

/// The measured profiles.
struct Profiles {
    plain: Prepared,
    /// Profiles with a growing number of identity overrides, starting at none. The last one has the list.
    official: Vec<Prepared>,
    wide: Prepared,
    medium: Prepared,
    large: Prepared,
    legal_maximum: Prepared,
}

impl Profiles {
    fn all(&self) -> impl Iterator<Item = &Prepared> {
        let others = [&self.plain, &self.wide, &self.medium, &self.large, &self.legal_maximum];
        self.official.iter().chain(others)
    }
}

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        ["train", sidecar, place] => train::ask(Path::new(sidecar), Path::new(place)),
        ["compile", document] => compile::once(Path::new(document)),
        [part @ ("table" | "population" | "documents" | "sizes"), programs, place] => {
            let programs = Path::new(programs);
            let programs = Programs {
                sidecar: programs.join("remora-sidecar"),
                limit: programs.join("limit"),
                peer: programs.join("peer"),
                serialize: programs.join("serialize"),
            };
            let place = Path::new(place);
            leave_the_servers_core()?;
            let mut table = Table::new(std::io::stdout())?;
            match *part {
                "population" => ratios::population(&mut table, &programs, place),
                "documents" => documents::measure(&mut table, &programs, place),
                "sizes" => sizes(&mut table, &programs, place),
                _ => measure_all(&mut table, &programs, place),
            }
        }
        _ => bail!(
            "usage: remora-bench table|population|documents|sizes PROGRAMS PLACE, remora-bench train SIDECAR PLACE, \
             or remora-bench compile DOCUMENT"
        ),
    }
}

/// Measures what depends on the size of an environment: bytes and files, compilation, start and memory.
fn sizes<W: Write>(table: &mut Table<W>, programs: &Programs, place: &Path) -> anyhow::Result<()> {
    for profile in [official("official", 0), MEDIUM, LARGE, LEGAL_MAXIMUM] {
        let prepared = Prepared::new(profile, place)?;
        compile::published(table, &prepared)?;
        compile::measure(table, place, &prepared)?;
        start::measure(table, programs, &prepared)?;
        memory::of_one(table, programs, &prepared)?;
    }
    Ok(())
}

fn measure_all<W: Write>(table: &mut Table<W>, programs: &Programs, place: &Path) -> anyhow::Result<()> {
    let profiles = Profiles {
        plain: Prepared::new(PLAIN, place)?,
        official: [
            official("official+0", 0),
            official("official+750", 750),
            official("official+8700", 8_700),
            official("official+50000", 50_000),
            official("official+1000000", 1_000_000),
            LIST,
        ]
        .into_iter()
        .map(|profile| Prepared::new(profile, place))
        .collect::<anyhow::Result<_>>()?,
        wide: Prepared::new(WIDE, place)?,
        medium: Prepared::new(MEDIUM, place)?,
        large: Prepared::new(LARGE, place)?,
        legal_maximum: Prepared::new(LEGAL_MAXIMUM, place)?,
    };
    ratios::population(table, programs, place)?;
    ratios::identities(table, programs, &profiles)?;
    ratios::size(table, programs, &profiles)?;
    ratios::others(table, programs, &profiles)?;
    memory::measure(table, programs, &profiles)?;
    for prepared in [&profiles.medium, &profiles.large, &profiles.legal_maximum] {
        start::measure(table, programs, prepared)?;
    }
    let size = std::fs::metadata(&programs.sidecar).context("the sidecar's program")?.len();
    table.line("stripped sidecar binary, which is the image", Target::Below(3.0), "MB", size as f64 / 1e6, "", "")?;
    table.note(
        "beside bare hyper: the sidecar is built as it is shipped, with its profile where this machine has one; \
         bare hyper is an ordinary build with the same settings, without a profile",
    )?;
    table.note("heap allocations on the request path: counted by `cargo test -p remora-sidecar --test allocations`")?;
    swap::measure(table, programs, place)?;
    tail::measure(table, programs, &profiles)?;
    documents::measure(table, programs, place)?;
    for prepared in [&profiles.medium, &profiles.large, &profiles.legal_maximum] {
        compile::measure(table, place, prepared)?;
    }
    for prepared in profiles.all() {
        compile::published(table, prepared)?;
    }
    peer::measure(table, programs, place)?;
    match table.short() {
        [] => table.note("nothing falls short"),
        short => {
            let short = short.join("\n  ");
            table.note(&format!("short:\n  {short}"))
        }
    }
}
