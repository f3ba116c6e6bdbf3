//! Prints what Remora costs, as a table. `make bench` builds what is measured and runs this.

mod compile;
mod documents;
mod memory;
mod peer;
mod ratios;
mod start;
mod swap;
mod tail;
mod train;

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use remora_bench::prepared::Prepared;
use remora_bench::profile::{LIST, MEDIUM, PLAIN, WIDE, official};
use remora_bench::server::leave_the_servers_core;
use remora_bench::table::{Table, Target};

/// The programs that are measured, built as they are shipped.
struct Programs {
    sidecar: PathBuf,
    limit: PathBuf,
    peer: PathBuf,
    serialize: PathBuf,
}

/// The profiles that are measured.
struct Profiles {
    plain: Prepared,
    /// Without identity overrides, and with more and more of them; the list at the end.
    official: Vec<Prepared>,
    wide: Prepared,
    medium: Prepared,
}

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        ["train", sidecar, place] => train::ask(Path::new(sidecar), Path::new(place)),
        ["compile", document] => compile::once(Path::new(document)),
        [what @ ("table" | "documents"), programs, place] => {
            let programs = Path::new(programs);
            let programs = Programs {
                sidecar: programs.join("remora-sidecar"),
                limit: programs.join("limit"),
                peer: programs.join("peer"),
                serialize: programs.join("serialize"),
            };
            table(&programs, *what == "documents", Path::new(place))
        }
        _ => bail!(
            "usage: remora-bench table PROGRAMS PLACE (or documents, for a part of it), remora-bench train SIDECAR PLACE, \
             or remora-bench compile DOCUMENT"
        ),
    }
}

fn table(programs: &Programs, only_documents: bool, place: &Path) -> anyhow::Result<()> {
    leave_the_servers_core()?;
    let mut table = Table::new(std::io::stdout())?;
    if only_documents {
        return documents::measure(&mut table, programs, place);
    }
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
    };
    ratios::identities(&mut table, programs, &profiles)?;
    ratios::size(&mut table, programs, &profiles)?;
    ratios::others(&mut table, programs, &profiles)?;
    memory::measure(&mut table, programs, &profiles)?;
    start::measure(&mut table, programs, &profiles.medium)?;
    let size = std::fs::metadata(&programs.sidecar).context("the sidecar's program")?.len();
    table.line("stripped sidecar binary, which is the image", Target::Below(3.0), "MB", size as f64 / 1e6, "", "")?;
    table.note(
        "beside bare hyper: the sidecar is built as it is shipped, with its profile where this machine has one; \
         bare hyper is an ordinary build with the same settings, without a profile",
    )?;
    table.note("heap allocations on the request path: counted by `cargo test -p remora-sidecar --test allocations`")?;
    swap::measure(&mut table, programs, place)?;
    tail::measure(&mut table, programs, &profiles)?;
    documents::measure(&mut table, programs, place)?;
    compile::measure(&mut table, place, &profiles)?;
    peer::measure(&mut table, programs, place)?;
    match table.short() {
        [] => table.note("nothing falls short"),
        short => {
            let short = short.join("\n  ");
            table.note(&format!("short:\n  {short}"))
        }
    }
}
