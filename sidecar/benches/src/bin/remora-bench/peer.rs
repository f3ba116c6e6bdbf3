//! Measures Flagsmith's published engine against the snapshot's: the same documents in the same process.

use std::io::Write;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, ensure};
use remora_bench::document;
use remora_bench::profile::{MEDIUM, PLAIN, official};
use remora_bench::table::{Table, Target};

use super::Programs;

pub(super) fn measure<W: Write>(table: &mut Table<W>, programs: &Programs, place: &Path) -> anyhow::Result<()> {
    for profile in
        [PLAIN, official("official+0", 0), official("official+750", 750), official("official+8700", 8_700), MEDIUM]
    {
        let path = place.join(profile.name).join("document.json");
        std::fs::write(&path, document::write(&profile))?;
        let output = Command::new(&programs.peer).args([&path, &place.join(profile.name)]).output()?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout)?;
        let (theirs, ours) = text.trim().split_once(' ').context("peer says two times")?;
        let (theirs, ours) = (theirs.parse::<f64>()?, ours.parse::<f64>()?);
        let what = format!("evaluations over flagsmith-flag-engine's, {}", profile.name);
        let beside = format!("{ours:.2} and {theirs:.2} us an evaluation, both in process");
        table.line(&what, Target::None, "times", theirs / ours, "", &beside)?;
    }
    Ok(())
}
