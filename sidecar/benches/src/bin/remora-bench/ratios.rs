//! Measures requests per second, relative to bare hyper.

use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use remora_bench::load::{Exchange, ask};
use remora_bench::prepared::{Prepared, checked};
use remora_bench::profile::{LARGE, POPULATED, POPULATED_MEDIUM, POPULATED_OVERRIDES, Profile};
use remora_bench::request::{context_body, to};
use remora_bench::server::Server;
use remora_bench::table::{Table, Target};
use remora_bench::turns::{Ratio, Side, take};

use super::{Profiles, Programs};

/// Number of starts of each server. The placement of its pages differs each time.
const STARTS: usize = 11;
const ROUNDS: usize = 5;
const TURN: Duration = Duration::from_millis(80);
/// Number of identities that requests are for.
pub(super) const IDENTITIES: usize = 1024;

/// Starts a sidecar with a profile, and waits until it answers.
pub(super) fn sidecar(programs: &Programs, prepared: &Prepared) -> anyhow::Result<Server> {
    prepared.serve(&programs.sidecar)
}

/// Returns the same requests for a bare hyper server, which answers all of them with the mean number of bytes.
pub(super) fn plain(exchanges: &[Exchange]) -> Vec<Exchange> {
    let sum: usize = exchanges.iter().map(|exchange| exchange.length).sum();
    let length = sum / exchanges.len().max(1);
    exchanges.iter().map(|exchange| Exchange { length, ..exchange.clone() }).collect()
}

/// Starts that bare hyper server, and waits until it answers.
pub(super) fn limit(programs: &Programs, plain: &[Exchange], tag: &str) -> anyhow::Result<Server> {
    let first = plain.first().context("the prepared environment has no requests")?;
    let mut server = Server::limit(&programs.limit, first.status, first.length, tag)?;
    server.wait(&first.request, first.status, Instant::now())?;
    Ok(server)
}

/// The sidecar compared with bare hyper.
struct Beside {
    ratio: Ratio,
    ours: f64,
    theirs: f64,
    costs: (f64, f64),
    bytes: usize,
}

impl Beside {
    fn take(programs: &Programs, prepared: &Prepared, exchanges: &[Exchange], tag: &str) -> anyhow::Result<Self> {
        let plain = plain(exchanges);
        let mut sides =
            [Side::new(exchanges, || sidecar(programs, prepared)), Side::new(&plain, || limit(programs, &plain, tag))];
        take(&mut sides, STARTS, ROUNDS, TURN)?;
        let [ours, theirs] = &sides;
        let bytes = plain.first().map_or(0, |exchange| exchange.length);
        Ok(Self {
            ratio: ours.over(theirs),
            ours: ours.rate(),
            theirs: theirs.rate(),
            costs: (ours.cost(), theirs.cost()),
            bytes,
        })
    }

    fn line<W: Write>(&self, table: &mut Table<W>, what: &str, least: impl Into<Option<f64>>) -> anyhow::Result<()> {
        let beside = format!(
            "{:.0} and {:.0} /s; {:.2} and {:.2} us of the core; {}; {} bytes",
            self.ours,
            self.theirs,
            self.costs.0,
            self.costs.1,
            on_core(&self.ratio),
            self.bytes
        );
        let target = least.into().map_or(Target::None, Target::AtLeast);
        table.line(what, target, "", self.ratio.median, &spread(self.ratio.spread), &beside)
    }
}

/// Describes the ratio by the servers' own time.
pub(super) fn on_core(ratio: &Ratio) -> String {
    let again = match (ratio.again, ratio.spoiled) {
        (0, _) => String::new(),
        (again, 0) => format!(", {again} rounds taken again"),
        (again, spoiled) => format!(", {again} rounds taken again, and {spoiled} spoiled nevertheless"),
    };
    format!("by time on the core {:.3}{again}", ratio.own)
}

fn spread((least, most): (f64, f64)) -> String {
    format!("{least:.3} .. {most:.3}")
}

/// Measures `identities/` on the profiles with a target of their own.
pub(super) fn identities<W: Write>(
    table: &mut Table<W>,
    programs: &Programs,
    profiles: &Profiles,
) -> anyhow::Result<()> {
    let with_overrides = profiles.official.iter().find(|prepared| prepared.profile.identities == 8_700);
    let rows = [
        (Some(&profiles.plain), Some(0.9)),
        // One person who repeats the same request: printed beside the population's results, which have the targets.
        (profiles.official.first(), None),
        (with_overrides, None),
        (Some(&profiles.medium), None),
    ];
    for (prepared, least) in rows {
        let prepared = prepared.context("a profile is missing")?;
        let exchanges = prepared.identities(&sidecar(programs, prepared)?, IDENTITIES)?;
        let beside = Beside::take(programs, prepared, &exchanges, "")?;
        beside.line(table, &format!("POST identities/, {}, over bare hyper", prepared.profile.name), least)?;
    }
    Ok(())
}

/// Measures `identities/` for a population. The target is for the time on the core, which other processes do not
/// affect.
pub(super) fn population<W: Write>(table: &mut Table<W>, programs: &Programs, place: &Path) -> anyhow::Result<()> {
    for (profile, least) in [(POPULATED, 0.80), (POPULATED_OVERRIDES, 0.80), (POPULATED_MEDIUM, 0.78), (LARGE, 0.80)] {
        let prepared = Prepared::new(profile, place)?;
        let exchanges = prepared.population(&sidecar(programs, &prepared)?)?;
        let beside = Beside::take(programs, &prepared, &exchanges, "")?;
        let what = format!("POST identities/, {}, by time on the core", prepared.profile.name);
        let rates = format!(
            "{:.2} and {:.2} us of the core; by requests a second {:.3}; {} bytes",
            beside.costs.0, beside.costs.1, beside.ratio.median, beside.bytes
        );
        table.line(&what, Target::AtLeast(least), "", beside.ratio.own, "", &rates)?;
    }
    Ok(())
}

/// Measures `identities/` with more and more identity overrides, relative to none.
pub(super) fn size<W: Write>(table: &mut Table<W>, programs: &Programs, profiles: &Profiles) -> anyhow::Result<()> {
    let exchanges_of = |prepared: &Prepared| prepared.identities(&sidecar(programs, prepared)?, IDENTITIES);
    let exchanges = profiles.official.iter().map(exchanges_of).collect::<anyhow::Result<Vec<_>>>()?;
    let mut sides: Vec<_> = profiles
        .official
        .iter()
        .zip(&exchanges)
        .map(|(prepared, exchanges)| Side::new(exchanges, || sidecar(programs, prepared)))
        .collect();
    take(&mut sides, STARTS, ROUNDS, TURN)?;
    let [none, more @ ..] = sides.as_slice() else { return Ok(()) };
    for (side, prepared) in more.iter().zip(profiles.official.iter().skip(1)) {
        let ratio = side.over(none);
        let beside = format!("{:.0} and {:.0} /s; {}", side.rate(), none.rate(), on_core(&ratio));
        let what = format!("POST identities/, {}, over none", prepared.profile.name);
        table.line(&what, Target::Near(0.05), "", ratio.median, &spread(ratio.spread), &beside)?;
    }
    Ok(())
}

/// Measures all other endpoints.
pub(super) fn others<W: Write>(table: &mut Table<W>, programs: &Programs, profiles: &Profiles) -> anyhow::Result<()> {
    let official = profiles.official.first().context("a profile is missing")?;
    let flags = checked(&sidecar(programs, official)?, to("GET", "/api/v1/flags/", "", ""), 200, |body| {
        body == official.snapshot.flags(remora_snapshot::Role::Client)
    })?;
    Beside::take(programs, official, &[flags], "")?.line(table, "GET flags/, official, over bare hyper", 0.95)?;
    let is_ok = |body: &[u8]| body.starts_with(b"{\"status\":\"ok\"");
    let health = checked(&sidecar(programs, official)?, to("GET", "/proxy/health", "", ""), 200, is_ok)?;
    Beside::take(programs, official, &[health], "")?.line(table, "GET proxy/health, over bare hyper", 0.95)?;

    let few = single(&sidecar(programs, official)?)?;
    let many = single(&sidecar(programs, &profiles.wide)?)?;
    for (prepared, exchanges) in [(official, &few), (&profiles.wide, &many)] {
        let what = format!("OFREP one flag of {}, over bare hyper", prepared.profile.features);
        Beside::take(programs, prepared, exchanges, "")?.line(table, &what, 0.85)?;
    }
    let what = "OFREP one flag of 1000, over one of 50";
    flat(table, what, "", programs, [(&profiles.wide, &many), (official, &few)])?;

    let (medium, tag) = known(&sidecar(programs, &profiles.medium)?)?;
    let (plain, _) = known(&sidecar(programs, &profiles.plain)?)?;
    let (medium, plain) = ([medium], [plain]);
    Beside::take(programs, &profiles.medium, &medium, &tag)?.line(
        table,
        "OFREP bulk with its tag (304), medium, over bare hyper",
        None,
    )?;
    let what = "OFREP bulk with its tag, medium, over plain";
    flat(table, what, "no evaluation: ", programs, [(&profiles.medium, &medium), (&profiles.plain, &plain)])
}

/// Measures requests whose cost should not depend on the profile.
fn flat<W: Write>(
    table: &mut Table<W>,
    what: &str,
    why: &str,
    programs: &Programs,
    sides: [(&Prepared, &[Exchange]); 2],
) -> anyhow::Result<()> {
    let mut sides = sides.map(|(prepared, exchanges)| Side::new(exchanges, || sidecar(programs, prepared)));
    take(&mut sides, STARTS, ROUNDS, TURN)?;
    let [one, other] = &sides;
    let ratio = one.over(other);
    let beside = format!("{why}{}", on_core(&ratio));
    table.line(what, Target::Near(0.05), "", ratio.median, &spread(ratio.spread), &beside)
}

/// Returns requests for one flag each: every request has another flag and another identity, and all segments override
/// the flag.
pub(super) fn single(server: &Server) -> anyhow::Result<Vec<Exchange>> {
    (0..50)
        .map(|number| {
            let name = Profile::feature(number);
            let body = context_body(&Profile::identifier(3_000_000 + number));
            let request = to("POST", &format!("/ofrep/v1/evaluate/flags/{name}"), "", &body);
            let beginning = format!("{{\"key\":\"{name}\"");
            checked(server, request, 200, |body| body.starts_with(beginning.as_bytes()))
        })
        .collect()
}

/// Returns a request for all flags with the current entity tag, and the tag.
pub(super) fn known(server: &Server) -> anyhow::Result<(Exchange, String)> {
    let body = context_body(&Profile::identifier(3_000_000));
    let all = ask(server.address, &to("POST", "/ofrep/v1/evaluate/flags", "", &body))?;
    let tag = all.header("etag").context("the answer has no tag")?.to_owned();
    ensure!(all.status == 200 && all.body.starts_with(b"{\"flags\":["), "all flags were answered with {}", all.status);
    let request = to("POST", "/ofrep/v1/evaluate/flags", &format!("If-None-Match: {tag}\r\n"), &body);
    Ok((checked(server, request, 304, <[u8]>::is_empty)?, tag))
}
