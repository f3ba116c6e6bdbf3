//! Trains a sidecar that was built to record its profile: sends a fixed number of requests of each kind, always in the
//! same order. `make profile` runs this.
//!
//! The compiler optimizes a path for the share of requests that take it. It treats a path without requests as rare if
//! other paths of the same function had some, so every path gets a few requests, every operator included.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::ensure;
use remora_bench::load::{Exchange, Load, ask as ask_once};
use remora_bench::operators::{self, OPERATORS};
use remora_bench::prepared::{Prepared, checked, compiled};
use remora_bench::profile::{
    CLIENT_KEY, ENVIRONMENT, MEDIUM, PLAIN, POPULATED_MEDIUM, POPULATED_OVERRIDES, Profile, official,
};
use remora_bench::request::{Asking, context_body, to};
use remora_bench::server::Server;
use remora_snapshot::{Role, files};
use remora_tools::directory;

use super::documents::Served;
use super::ratios::{known, single};
use super::swap::{Volume, swapped};

/// Number of identities that requests are for.
const IDENTITIES: usize = 512;
/// Number of requests to the admin port for each environment.
const LOOKS: usize = 20;
const SWAPS: usize = 5;

/// Starts the sidecar with one environment after another, and sends requests. Each process exits by itself, and then
/// writes its profile to `LLVM_PROFILE_FILE`.
pub(super) fn ask(sidecar: &Path, place: &Path) -> anyhow::Result<()> {
    for profile in [PLAIN, official("official", 0), official("official+8700", 8_700), MEDIUM] {
        let prepared = Prepared::new(profile, place)?;
        let server = prepared.serve(sidecar)?;
        for (exchanges, count) in everyday(&prepared, &server)? {
            send(&server, &exchanges, count)?;
        }
        for _ in 0..LOOKS {
            for path in ["/metrics", "/healthz", "/readyz"] {
                let answer = ask_once(server.admin, &to("GET", path, "", ""))?;
                ensure!(answer.status == 200, "{path} was answered with {}", answer.status);
            }
        }
        server.end()?;
    }
    for profile in [POPULATED_OVERRIDES, POPULATED_MEDIUM] {
        let prepared = Prepared::new(profile, place)?;
        let server = prepared.serve(sidecar)?;
        send(&server, &prepared.population(&server)?, 8_000)?;
        server.end()?;
    }
    for operator in OPERATORS {
        conditions(sidecar, operator, place)?;
    }
    for (profile, inflated) in [(PLAIN, 200), (MEDIUM, 5)] {
        let served = Served::start(sidecar, &profile, place)?;
        for (exchange, count) in served.exchanges()?.into_iter().zip([200, inflated]) {
            send(&served.server, &[exchange], count)?;
        }
        served.server.end()?;
    }
    revisions(sidecar, place)
}

/// Returns the requests of applications, and the number of times that each group is sent.
fn everyday(prepared: &Prepared, server: &Server) -> anyhow::Result<Vec<(Vec<Exchange>, usize)>> {
    let by = |asking| prepared.identities_by(asking, server, IDENTITIES);
    let one = |request, status, is_good: &dyn Fn(&[u8]) -> bool| -> anyhow::Result<Vec<Exchange>> {
        Ok(vec![checked(server, request, status, is_good)?])
    };
    let all = (0..IDENTITIES)
        .map(|number| {
            let body = context_body(&Profile::identifier(number * 17));
            let request = to("POST", "/ofrep/v1/evaluate/flags", "", &body);
            checked(server, request, 200, |body| body.starts_with(b"{\"flags\":["))
        })
        .collect::<anyhow::Result<Vec<_>>>()?;
    let flags = one(to("GET", "/api/v1/flags/", "", ""), 200, &|body| body == prepared.snapshot.flags(Role::Client))?;
    let name = Profile::feature(7);
    let flag = one(to("GET", &format!("/api/v1/flags/?feature={name}"), "", ""), 200, &|body| body.starts_with(b"{"))?;
    let health = one(to("GET", "/proxy/health", "", ""), 200, &|body| body.starts_with(b"{\"status\":\"ok\""))?;
    let used = format!("{{\"{name}\": 3, \"{}\": 14}}", Profile::feature(8));
    let used = one(to("POST", "/api/v1/analytics/flags/", "", &used), 200, &|_| true)?;
    let refused = [Asking::Python, Asking::Query]
        .into_iter()
        .map(|asking| {
            let request = String::from_utf8(asking.request("somebody"))?.replace(CLIENT_KEY, "nobodys-key");
            checked(server, request.into_bytes(), 401, |_| true)
        })
        .collect::<anyhow::Result<Vec<_>>>()?;
    Ok(vec![
        (by(Asking::Python)?, 8_000),
        (by(Asking::Node)?, 4_000),
        (by(Asking::Query)?, 2_000),
        (single(server)?, 4_000),
        (all, 1_000),
        (vec![known(server)?.0], 1_000),
        (flags, 4_000),
        (flag, 1_000),
        (health, 1_000),
        (used, 200),
        (refused, 200),
    ])
}

/// Sends requests that evaluate conditions of one operator only.
fn conditions(sidecar: &Path, operator: &str, place: &Path) -> anyhow::Result<()> {
    let place = place.join(operator);
    directory::write(&place, ENVIRONMENT, &compiled(&operators::document(operator), files::MAX_FILE_BYTES)?)?;
    let mut server = Server::sidecar(sidecar, &place)?;
    server.wait(&to("GET", "/api/v1/flags/", "", ""), 200, Instant::now())?;
    let request = to("POST", "/api/v1/identities/", "", &operators::identity_body("somebody"));
    let held = checked(&server, request, 200, |body| String::from_utf8_lossy(body).contains("\"matched\""))?;
    send(&server, &[held], 500)?;
    server.end()
}

/// Swaps revisions several times.
fn revisions(sidecar: &Path, place: &Path) -> anyhow::Result<()> {
    let prepared = Prepared::new(official("swapped", 750), place)?;
    let mut volume = Volume::with_two_revisions(&prepared)?;
    let server = prepared.serve(sidecar)?;
    let exchanges = prepared.identities(&server, IDENTITIES)?;
    for _ in 0..SWAPS {
        let before = swapped(&server)?;
        volume.swap()?;
        let since = Instant::now();
        while swapped(&server)? == before {
            ensure!(since.elapsed() < Duration::from_secs(10), "a swap was not taken up for ten seconds");
            std::thread::sleep(Duration::from_millis(10));
        }
        send(&server, &exchanges, 100)?;
    }
    server.end()
}

fn send(server: &Server, exchanges: &[Exchange], count: usize) -> anyhow::Result<()> {
    let outcome = Load::connect(server.address)?.send(exchanges, count)?;
    let first = || exchanges.first().map(|exchange| String::from_utf8_lossy(&exchange.request).into_owned());
    ensure!(outcome.failures == 0, "{} answers were wrong to requests such as {:?}", outcome.failures, first());
    ensure!(outcome.latencies.len() == count, "{} of {count} requests were answered", outcome.latencies.len());
    Ok(())
}
