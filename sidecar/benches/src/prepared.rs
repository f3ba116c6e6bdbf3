//! A profile that has gone through the public path: the document, the compiled files, a directory for a sidecar, and
//! requests with the expected answers.

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, ensure};
use remora_compile::document;
use remora_compile::document::Original;
use remora_compile::prune::{Rules, prune};
use remora_compile::{Compiled, EnvironmentFlags, Options, compile_to_files_of};
use remora_snapshot::{RequestState, Role, Snapshot, files};
use remora_tools::directory;

use crate::load::{Exchange, ask};
use crate::population;
use crate::profile::{ENVIRONMENT, Profile};
use crate::request::{Asking, to};
use crate::server::Server;
use crate::snapshots::{self, give_traits};

/// A profile that a sidecar can serve.
pub struct Prepared {
    /// The profile.
    pub profile: Profile,
    /// Size of its document in bytes.
    pub document: usize,
    /// Total size of its files in bytes.
    pub published: usize,
    /// Number of files: objects in a cluster.
    pub files: usize,
    /// Directory for the sidecar's `--snapshots`.
    pub directory: PathBuf,
    /// The snapshot, from which the expected answers are computed.
    pub snapshot: Snapshot<Vec<u8>>,
}

/// Key that gives access to the document.
pub const SERVER_KEY: &str = "ser.bench";

/// Compiles a document, which is also served to SDKs.
///
/// # Errors
/// The document does not compile.
pub fn compiled_with_document(text: &str) -> anyhow::Result<Compiled> {
    let pruned = prune(document::parse(text.as_bytes())?, &Rules::default());
    let original = Original::new(text.as_bytes().to_vec());
    let options = Options {
        environment: ENVIRONMENT,
        server_keys: &[SERVER_KEY],
        document: Some(&original),
        ..Options::default()
    };
    Ok(compile_to_files_of(files::MAX_FILE_BYTES, &pruned, &options)?)
}

/// Compiles a document.
///
/// # Errors
/// The document does not compile.
pub fn compiled(text: &str, largest_file: usize) -> anyhow::Result<Compiled> {
    let pruned = prune(document::parse(text.as_bytes())?, &Rules::default());
    let options = Options {
        environment: ENVIRONMENT,
        server_keys: &[],
        environment_flags: EnvironmentFlags::Plain,
        ..Options::default()
    };
    Ok(compile_to_files_of(largest_file, &pruned, &options)?)
}

impl Prepared {
    /// Creates the directory of a profile in `place`.
    ///
    /// # Errors
    /// The profile does not compile, or its files cannot be written.
    pub fn new(profile: Profile, place: &Path) -> anyhow::Result<Self> {
        let text = crate::document::write(&profile);
        // A million overrides do not fit into ConfigMaps, but into files of a directory.
        let largest_file = if profile.identities > 100_000 { 64 << 20 } else { files::MAX_FILE_BYTES };
        let compiled = compiled(&text, largest_file).with_context(|| profile.name)?;
        // A finding that a flag is used as a list is expected and measured. A finding about a segment is an error of
        // the profile.
        let problem = compiled.findings.iter().find(|finding| finding.subject.starts_with("segment"));
        ensure!(problem.is_none(), "{}: {problem:?}", profile.name);
        let place = place.join(profile.name);
        directory::write(&place, ENVIRONMENT, &compiled)?;
        Ok(Self {
            profile,
            document: text.len(),
            published: compiled.summary.bytes,
            files: std::fs::read_dir(place.join(ENVIRONMENT).join("..data"))?.count() - 1, // without the marker file
            snapshot: snapshots::read(&place)?,
            directory: place,
        })
    }

    /// Starts a sidecar for the directory, and waits until it answers.
    ///
    /// # Errors
    /// The sidecar does not start, or does not answer.
    pub fn serve(&self, sidecar: &Path) -> anyhow::Result<Server> {
        let mut server = Server::sidecar(sidecar, &self.directory)?;
        server.wait(&to("GET", "/api/v1/flags/", "", ""), 200, Instant::now())?;
        Ok(server)
    }

    /// Returns requests of `identities/` for many identities. If the profile has identity overrides, one in eight has
    /// some.
    ///
    /// # Errors
    /// The server's answer differs from the evaluation's.
    pub fn identities(&self, server: &Server, count: usize) -> anyhow::Result<Vec<Exchange>> {
        self.identities_by(Asking::Python, server, count)
    }

    /// Returns a request of `identities/` for every person of the profile's population.
    ///
    /// # Errors
    /// The server's answer differs from the evaluation's.
    pub fn population(&self, server: &Server) -> anyhow::Result<Vec<Exchange>> {
        population::people(&self.profile)
            .iter()
            .map(|person| {
                let mut flags = b",\"flags\":".to_vec();
                let mut identity = RequestState::default();
                person.give(&self.snapshot, &mut identity);
                self.snapshot.write_flags(&mut identity, Role::Client, &mut flags);
                flags.push(b'}');
                let request = to("POST", "/api/v1/identities/", "", &person.identity_body());
                checked(server, request, 200, |body| body.ends_with(&flags))
            })
            .collect()
    }

    /// Returns requests of `identities/` for many identities, in the form of `asking`.
    ///
    /// # Errors
    /// The server's answer differs from the evaluation's.
    pub fn identities_by(&self, asking: Asking, server: &Server, count: usize) -> anyhow::Result<Vec<Exchange>> {
        let own = self.profile.identities;
        let numbers = (0..count).map(|number| {
            if number % 8 == 0 && own > 0 { number.wrapping_mul(7919) % own } else { 2_000_000 + number * 131 }
        });
        numbers
            .map(|number| {
                let identifier = Profile::identifier(number);
                let mut flags = b",\"flags\":".to_vec();
                let mut identity = RequestState::default();
                if asking != Asking::Query {
                    give_traits(&self.snapshot, &mut identity);
                }
                self.snapshot.identify(&mut identity, &identifier);
                self.snapshot.write_flags(&mut identity, Role::Client, &mut flags);
                flags.push(b'}');
                checked(server, asking.request(&identifier), 200, |body| body.ends_with(&flags))
            })
            .collect()
    }
}

/// Sends a request once and checks the answer. Later answers must have the same status and length.
///
/// # Errors
/// No answer arrives, or it is wrong.
pub fn checked(
    server: &Server,
    request: Vec<u8>,
    status: u16,
    is_good: impl FnOnce(&[u8]) -> bool,
) -> anyhow::Result<Exchange> {
    let answer = ask(server.address, &request)?;
    ensure!(
        answer.status == status && is_good(&answer.body),
        "{} was answered with {} {}",
        String::from_utf8_lossy(&request),
        answer.status,
        String::from_utf8_lossy(&answer.body)
    );
    Ok(Exchange { request, status, length: answer.body.len() })
}
