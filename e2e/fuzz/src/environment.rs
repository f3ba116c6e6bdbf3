//! The environment of the targets `requests`, `heads` and `snapshot`: `environment.json`, which has an example of each
//! kind of content.

use remora_compile::document::Original;
use remora_compile::{Compiled, EnvironmentFlags, Options, compile_to_files_of};
use serde_json::{Value, json};

use crate::pipeline;

const DOCUMENT: &str = include_str!("../environment.json");

/// Key for clients, such as browsers.
pub(crate) const CLIENT_KEY: &str = "client-key";
/// Key that sees all flags.
pub(crate) const SERVER_KEY: &str = "ser.server-key";

/// Features of the small environments.
const FEATURES_OF_SMALL: [&str; 5] = ["plain", "split", "named split", "dependent", "secret"];
/// Number of identities with overrides in the small environments.
const IDENTITIES_OF_SMALL: usize = 2;

/// Compiles the environment, with its document, to files of at most `largest_file` bytes.
pub(crate) fn compiled(largest_file: usize) -> Compiled {
    compile(DOCUMENT.as_bytes(), largest_file)
}

/// Compiles one small environment for each segment, with that segment and few features. The core of a small environment
/// has a tenth of the size, so reading it takes a tenth of the time.
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
        environment_flags: EnvironmentFlags::IdentityFree,
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
