//! `peer DOCUMENT DIRECTORY`: microseconds per evaluation of an identity with Flagsmith's published engine, and with
//! the snapshot's. The former has its context prepared and returns results; the latter returns the answer's bytes.

use std::hint::black_box;
use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use flagsmith_flag_engine::engine::get_evaluation_result;
use flagsmith_flag_engine::engine_eval::{add_identity_to_context, environment_to_context};
use flagsmith_flag_engine::environments::Environment;
use flagsmith_flag_engine::identities::Trait;
use remora_bench::profile::Profile;
use remora_bench::request::TRAITS;
use remora_bench::snapshots;
use remora_bench::turns::median;
use remora_snapshot::{RequestState, Role};

const TIME: Duration = Duration::from_millis(500);

fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let mut next = || arguments.next().context("peer DOCUMENT DIRECTORY");
    let (document, directory) = (next()?, next()?);
    let environment: Environment = serde_json::from_str(&std::fs::read_to_string(document)?)?;
    let context = environment_to_context(environment);
    let traits = TRAITS
        .iter()
        .map(|(key, value)| Ok(Trait { trait_key: (*key).to_owned(), trait_value: serde_json::from_str(value)? }))
        .collect::<anyhow::Result<Vec<_>>>()?;
    let theirs = microseconds(|identifier| {
        let flags = get_evaluation_result(&add_identity_to_context(&context, identifier, &traits)).flags;
        Ok(black_box(flags).len())
    })?;
    let snapshot = snapshots::read(Path::new(&directory))?;
    let (mut identity, mut out) = (RequestState::default(), Vec::new());
    let ours = microseconds(|identifier| {
        identity.clear();
        out.clear();
        snapshots::give_traits(&snapshot, &mut identity);
        snapshot.identify(&mut identity, identifier);
        snapshot.write_flags(&mut identity, Role::Client, &mut out);
        Ok(black_box(&out).len())
    })?;
    writeln!(std::io::stdout(), "{theirs} {ours}")?;
    Ok(())
}

/// Returns the median duration of an evaluation in microseconds.
fn microseconds(mut evaluate: impl FnMut(&str) -> anyhow::Result<usize>) -> anyhow::Result<f64> {
    let start = Instant::now();
    let mut times = Vec::new();
    let mut number = 2_000_000;
    while times.len() < 3 || start.elapsed() < TIME {
        let identifier = Profile::identifier(number);
        number += 1;
        let since = Instant::now();
        let size = evaluate(&identifier)?;
        times.push(since.elapsed().as_secs_f64() * 1e6);
        ensure!(size > 0, "an evaluation gave nothing");
    }
    Ok(median(times.into_iter()))
}
