//! Measures the sidecar's private and resident memory.

use std::io::Write;
use std::time::Duration;

use anyhow::ensure;
use remora_bench::load::{Exchange, Load, Pace};
use remora_bench::prepared::Prepared;
use remora_bench::server::{Memory, Server};
use remora_bench::table::{Table, Target};

use super::ratios::{IDENTITIES, sidecar};
use super::{Profiles, Programs};

/// Number of requests between two measurements of the resident memory.
const MANY: usize = 1_000_000;

fn load(server: &Server, exchanges: &[Exchange], requests: usize) -> anyhow::Result<()> {
    let mut load = Load::connect(server.address)?;
    let mut sent = 0;
    while sent < requests {
        let outcome = load.run(exchanges, Pace::Closed, Duration::from_millis(500), || ())?;
        ensure!(outcome.failures == 0, "{} answers were wrong", outcome.failures);
        sent += outcome.latencies.len();
    }
    Ok(())
}

/// Measures the private memory of a sidecar that serves one profile, idle and after load.
pub(super) fn of_one<W: Write>(table: &mut Table<W>, programs: &Programs, prepared: &Prepared) -> anyhow::Result<()> {
    let server = sidecar(programs, prepared)?;
    let idle = server.memory()?;
    load(&server, &prepared.identities(&server, IDENTITIES)?, 20_000)?;
    let loaded = server.memory()?;
    for (when, memory) in [("idle", idle), ("after load", loaded)] {
        let what = format!("private memory, {when}, {}", prepared.profile.name);
        let beside = format!("resident {} kB", memory.resident);
        table.line(&what, Target::Below(1.5), "MB", memory.private as f64 / 1e3, "", &beside)?;
    }
    Ok(())
}

pub(super) fn measure<W: Write>(table: &mut Table<W>, programs: &Programs, profiles: &Profiles) -> anyhow::Result<()> {
    let (mut idle, mut loaded) = ((Memory::default(), ""), (Memory::default(), ""));
    for prepared in profiles.all() {
        let server = sidecar(programs, prepared)?;
        let name = prepared.profile.name;
        let now = server.memory()?;
        if now.private > idle.0.private {
            idle = (now, name);
        }
        load(&server, &prepared.identities(&server, IDENTITIES)?, 20_000)?;
        let now = server.memory()?;
        if now.private > loaded.0.private {
            loaded = (now, name);
        }
    }
    for (when, (memory, name)) in [("idle", idle), ("after load", loaded)] {
        let what = format!("private memory, {when}, the most of all profiles");
        table.line(&what, Target::Below(1.5), "MB", memory.private as f64 / 1e3, "", name)?;
    }

    let Some(prepared) = profiles.official.iter().find(|prepared| prepared.profile.identities == 8_700) else {
        return Ok(());
    };
    let server = sidecar(programs, prepared)?;
    let exchanges = prepared.identities(&server, IDENTITIES)?;
    load(&server, &exchanges, 20_000)?;
    let before = server.memory()?;
    load(&server, &exchanges, MANY)?;
    let after = server.memory()?;
    let beside = format!("private {} kB", after.private);
    table.line("resident memory, official+8700", Target::Below(6.0), "MB", after.resident as f64 / 1e3, "", &beside)?;
    let grown = after.resident as f64 / before.resident as f64;
    let beside = format!("{} kB before, {} kB after", before.resident, after.resident);
    table.line("resident memory after a million requests, over before", Target::Near(0.01), "", grown, "", &beside)
}
