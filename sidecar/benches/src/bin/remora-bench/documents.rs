//! Measures the environment's document, as SDKs in local evaluation fetch it, against a server that serializes it for
//! each request.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::ensure;
use remora_bench::group::MemoryGroup;
use remora_bench::load::{Exchange, Load, Pace};
use remora_bench::prepared::{SERVER_KEY, checked, compiled_with_document};
use remora_bench::profile::{ENVIRONMENT, MEDIUM, PLAIN, Profile};
use remora_bench::server::{Memory, Server};
use remora_bench::table::{Table, Target};
use remora_bench::turns::{Side, take};
use remora_tools::directory;

use super::Programs;
use super::ratios::on_core;

const ROUNDS: usize = 5;
/// Long enough for several requests of the slower side.
const TURN: Duration = Duration::from_secs(1);
/// Memory limit that leaves no room for an inflated copy.
const LITTLE_MEMORY: u64 = 16 << 20;

fn request(coding: &str) -> Vec<u8> {
    format!(
        "GET /api/v1/environment-document/ HTTP/1.1\r\nHost: 127.0.0.1:4777\r\nUser-Agent: flagsmith-python-sdk/6.3.0\r\n\
         Accept-Encoding: {coding}\r\nAccept: */*\r\nConnection: keep-alive\r\nX-Environment-Key: {SERVER_KEY}\r\n\r\n"
    )
    .into_bytes()
}

/// A sidecar that serves a profile's document: `document` as text, and `stored` as its compressed size in bytes.
pub(super) struct Served {
    pub(super) server: Server,
    directory: PathBuf,
    document: String,
    stored: u64,
}

impl Served {
    pub(super) fn start(sidecar: &Path, profile: &Profile, place: &Path) -> anyhow::Result<Self> {
        let document = remora_bench::document::write(profile);
        let directory = place.join(format!("{}-document", profile.name));
        directory::write(&directory, ENVIRONMENT, &compiled_with_document(&document)?)?;
        let snapshot = directory::read(&directory, None)?;
        let stored = directory::read_document(&directory, None, &snapshot)?.map_or(0, |document| document.stored());
        Ok(Self { server: answering(Server::sidecar(sidecar, &directory)?)?, directory, document, stored })
    }

    /// Returns requests for the document, compressed and inflated. The inflated one must have the document's length.
    pub(super) fn exchanges(&self) -> anyhow::Result<[Exchange; 2]> {
        let stored = self.stored as usize;
        let compressed = checked(&self.server, request("gzip, deflate"), 200, |body| body.len() == stored)?;
        let inflated = checked(&self.server, request("identity"), 200, |body| {
            // Members that Flagsmith generates anew are replaced by as many characters, so only the length is compared.
            body.len() == self.document.len()
        })?;
        Ok([compressed, inflated])
    }

    /// Memory of the sidecar after it has sent many documents in both forms.
    fn memory(&self) -> anyhow::Result<Memory> {
        for exchange in self.exchanges()? {
            let sent = Load::connect(self.server.address)?.run(&[exchange], Pace::Closed, TURN, || ())?;
            ensure!(sent.failures == 0, "{} of {} documents were wrong", sent.failures, sent.latencies.len());
        }
        self.server.memory()
    }
}

/// Waits until a server answers with the document.
fn answering(mut server: Server) -> anyhow::Result<Server> {
    server.wait(&request("identity"), 200, Instant::now())?;
    Ok(server)
}

pub(super) fn measure<W: Write>(table: &mut Table<W>, programs: &Programs, place: &Path) -> anyhow::Result<()> {
    let medium = Served::start(&programs.sidecar, &MEDIUM, place)?;
    let bytes = medium.document.len();
    let ratio = medium.stored as f64 / bytes as f64;
    table.line(
        "the compressed document over the document, medium",
        Target::None,
        "",
        ratio,
        "",
        &format!("{} of {bytes} bytes", medium.stored),
    )?;

    let path = place.join("medium-document.json");
    std::fs::write(&path, &medium.document)?;
    let ours = || answering(Server::sidecar(&programs.sidecar, &medium.directory)?);
    let theirs = || answering(Server::serializing(&programs.serialize, &path)?);
    let serialized = [Exchange { request: request("identity"), status: 200, length: length_of(&theirs()?)? }];
    let [compressed, inflated] = medium.exchanges()?.map(|exchange| [exchange]);
    let mut sides = [Side::new(&compressed, ours), Side::new(&inflated, ours), Side::new(&serialized, theirs)];
    take(&mut sides, 1, ROUNDS, TURN)?;
    let [compressed, copied, serialized] = &sides;
    for (what, ours, target) in [
        ("GET environment-document/, medium, over serializing it", compressed, Target::AtLeast(10.0)),
        ("the same without gzip, from the inflated copy", copied, Target::AtLeast(10.0)),
    ] {
        let ratio = ours.over(serialized);
        let beside = format!("{:.0} and {:.0} /s; {}", ours.rate(), serialized.rate(), on_core(&ratio));
        table.line(
            what,
            target,
            "",
            ratio.median,
            &format!("{:.1} .. {:.1}", ratio.spread.0, ratio.spread.1),
            &beside,
        )?;
    }

    copied_over_streamed(table, programs, &medium, &inflated)?;

    let (small, large) = (Served::start(&programs.sidecar, &PLAIN, place)?.memory()?, medium.memory()?);
    ensure!(small.private > 0, "the kernel tells no memory");
    let beside = format!("{} kB with {bytes} bytes, {} kB with the smallest profile's", large.private, small.private);
    let grown = (large.private as f64 - small.private as f64) / 1e3;
    // Eight connections receive it inflated at the same time. Each has HTTP's buffers, whatever the document's size. The
    // copy is no private memory.
    table.line("private memory for a document, beyond a small one's", Target::Below(1.0), "MB", grown, "", &beside)
}

/// Compares the inflated copy with inflating the document for each client, as the sidecar does where its memory limit
/// leaves no room for the copy.
fn copied_over_streamed<W: Write>(
    table: &mut Table<W>,
    programs: &Programs,
    medium: &Served,
    inflated: &[Exchange],
) -> anyhow::Result<()> {
    let what = "an inflated document from the copy, over inflating it for each client";
    let group = match MemoryGroup::new(LITTLE_MEMORY) {
        Ok(group) => group,
        Err(error) => return table.line(what, Target::None, "", f64::NAN, "", &format!("not measured: {error:#}")),
    };
    let with_copy = || answering(Server::sidecar(&programs.sidecar, &medium.directory)?);
    let without = || answering(Server::sidecar_by(group.command(&programs.sidecar), &medium.directory)?);
    let mut sides = [Side::new(inflated, with_copy), Side::new(inflated, without)];
    take(&mut sides, 1, ROUNDS, TURN)?;
    let [copied, streamed] = &sides;
    let ratio = copied.over(streamed);
    let beside = format!("{:.0} and {:.0} /s; {}", copied.rate(), streamed.rate(), on_core(&ratio));
    let spread = format!("{:.1} .. {:.1}", ratio.spread.0, ratio.spread.1);
    table.line(what, Target::AtLeast(2.0), "", ratio.median, &spread, &beside)
}

/// Returns the size in bytes of the other server's document.
fn length_of(server: &Server) -> anyhow::Result<usize> {
    Ok(remora_bench::load::ask(server.address, &request("identity"))?.body.len())
}
