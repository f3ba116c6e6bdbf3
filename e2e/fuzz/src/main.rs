//! Replays inputs: `remora-fuzz TARGET FILE...` runs the target with each file, and ends at the first that it panics on.

use anyhow::{Context as _, bail};

fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let names = remora_fuzz::TARGETS.map(|target| target.name).join(", ");
    let name = arguments.next().with_context(|| format!("write remora-fuzz TARGET FILE...; targets are {names}"))?;
    let Some(target) = remora_fuzz::target(&name) else { bail!("{name:?} is not a target; targets are {names}") };
    for file in arguments {
        let input = std::fs::read(&file).with_context(|| format!("cannot read {file}"))?;
        (target.run)(&input);
    }
    Ok(())
}
