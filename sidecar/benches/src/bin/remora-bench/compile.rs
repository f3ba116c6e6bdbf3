//! Measures the operator: time and memory of a compilation, and the size of the published files.

use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, ensure};
use remora_bench::document;
use remora_bench::prepared::{Prepared, compiled};
use remora_bench::profile::{LARGE, MEDIUM};
use remora_bench::table::{Table, Target};
use remora_bench::turns::median;
use remora_snapshot::files;

const TIMES: usize = 11;

/// Compiles one document in a process of its own, and prints the time in milliseconds and the peak memory in kilobytes.
pub(super) fn once(path: &Path) -> anyhow::Result<()> {
    let text = std::fs::read_to_string(path)?;
    let since = Instant::now();
    let compiled = compiled(&text, files::MAX_FILE_BYTES)?;
    let time = since.elapsed();
    ensure!(compiled.summary.features > 0, "an empty environment");
    let status = std::fs::read_to_string("/proc/self/status")?;
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("the kernel keeps no VmHWM")?;
    writeln!(std::io::stdout(), "{} {}", time.as_secs_f64() * 1e3, peak.trim().trim_end_matches(" kB"))?;
    Ok(())
}

/// Measures the time and the peak memory of compiling a profile.
pub(super) fn measure<W: Write>(table: &mut Table<W>, place: &Path, prepared: &Prepared) -> anyhow::Result<()> {
    let name = prepared.profile.name;
    let path = place.join(format!("{name}.json"));
    std::fs::write(&path, document::write(&prepared.profile))?;
    let (mut times, mut peaks) = (Vec::new(), Vec::new());
    for _ in 0..TIMES {
        let output = Command::new(std::env::current_exe()?).arg("compile").arg(&path).output()?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout)?;
        let (time, peak) = text.trim().split_once(' ').context("compile says a time and a size")?;
        times.push(time.parse::<f64>()?);
        peaks.push(peak.parse::<f64>()?);
    }
    times.sort_by(f64::total_cmp);
    let spread = format!("{:.0} .. {:.0}", times.first().unwrap_or(&0.0), times.last().unwrap_or(&0.0));
    let document = prepared.document as f64;
    let beside = format!("{:.1} MB of document", document / 1e6);
    let (time, memory) = match name {
        _ if name == MEDIUM.name => (Target::Below(150.0), Target::Below(4.0)),
        _ if name == LARGE.name => (Target::Below(500.0), Target::None),
        _ => (Target::None, Target::None),
    };
    let what = format!("operator: compile {name}, document to files");
    table.line(&what, time, "ms", median(times.into_iter()), &spread, &beside)?;
    let peak = median(peaks.into_iter()) * 1024.0;
    let beside = format!("{:.1} MB, the program and the document included", peak / 1e6);
    let what = format!("operator: peak memory over the document, {name}");
    table.line(&what, memory, "", peak / document, "", &beside)
}

/// Prints the size of the published files of a profile.
pub(super) fn published<W: Write>(table: &mut Table<W>, prepared: &Prepared) -> anyhow::Result<()> {
    let name = prepared.profile.name;
    let target = if name == "official+8700" { Target::Below(400.0) } else { Target::None };
    let beside = format!("{} files, of {:.2} MB of document", prepared.files, prepared.document as f64 / 1e6);
    table.line(&format!("bytes published, {name}"), target, "kB", prepared.published as f64 / 1e3, "", &beside)
}
