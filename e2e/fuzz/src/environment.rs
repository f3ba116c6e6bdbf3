//! The environment that requests and snapshots are made of: `environment.json`, with something of everything.

use remora_operator::compile::document::Original;
use remora_operator::compile::{Compiled, Mode, Options, compile_to_files_of};
use serde_json::{Value, json};

use crate::pipeline;

const DOCUMENT: &str = include_str!("../environment.json");

/// The key that browsers have.
pub(crate) const CLIENT_KEY: &str = "client-key";
/// The key that sees everything.
pub(crate) const SERVER_KEY: &str = "ser.server-key";

/// Features of the small environments.
const FEATURES_OF_SMALL: [&str; 5] = ["plain", "split", "named split", "dependent", "secret"];
/// How many identities with overrides the small environments have.
const IDENTITIES_OF_SMALL: usize = 2;

/// Compiles it, with its document, to files of at most so many bytes.
pub(crate) fn compiled(largest_file: usize) -> Compiled {
    compile(DOCUMENT.as_bytes(), largest_file)
}

/// Compiles an environment for each segment of it, with that segment and few features. Their cores are a tenth of its core,
/// so that reading one takes a tenth of the time.
pub(crate) fn small() -> Vec<Compiled> {
    let document: Value = serde_json::from_str(DOCUMENT).unwrap();
    let segments = document["project"]["segments"].as_array().unwrap();
    let of = |segment: &Value| {
        let mut small = document.clone();
        let states = small["feature_states"].as_array_mut().unwrap();
        states.retain(|state| FEATURES_OF_SMALL.contains(&state["feature"]["name"].as_str().unwrap()));
        small["identity_overrides"].as_array_mut().unwrap().truncate(IDENTITIES_OF_SMALL);
        small["project"]["segments"] = json!([segment]);
        compile(small.to_string().as_bytes(), usize::MAX)
    };
    segments.iter().map(of).collect()
}

fn compile(document: &[u8], largest_file: usize) -> Compiled {
    let pruned = pipeline::parsed(document).unwrap();
    let original = Original::new(document.to_vec());
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
