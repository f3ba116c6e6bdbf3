//! The environment that requests and snapshots are made of: `environment.json`, with something of everything.

use remora_operator::compile::document::Original;
use remora_operator::compile::{Compiled, Mode, Options, compile_to_files_of};

use crate::pipeline;

const DOCUMENT: &str = include_str!("../environment.json");

/// The key that browsers have.
pub(crate) const CLIENT_KEY: &str = "client-key";
/// The key that sees everything.
pub(crate) const SERVER_KEY: &str = "ser.server-key";

/// Compiles it, with its document, to files of at most so many bytes.
pub(crate) fn compiled(largest_file: usize) -> Compiled {
    let pruned = pipeline::parsed(DOCUMENT.as_bytes()).unwrap();
    let original = Original::new(DOCUMENT.as_bytes().to_vec());
    let options = Options {
        environment: "fuzz",
        server_keys: &[SERVER_KEY],
        environment_flags: Mode::IdentityFree,
        document: Some(&original),
        ..Options::default()
    };
    let compiled = compile_to_files_of(largest_file, &pruned, &options).unwrap();
    assert!(
        compiled.findings.iter().all(|finding| !finding.to_string().contains("pattern")),
        "{:?}",
        compiled.findings
    );
    compiled
}
