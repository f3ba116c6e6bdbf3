//! Cargo, run by a test that cargo runs.

use std::process::Command;

/// Takes from a command what cargo tells a test of its own package: a cargo that is run with it would see other
/// circumstances than one that is run by hand, and build some crates anew (ring, and all that stand on it), each time.
pub fn forget_package(command: &mut Command) -> &mut Command {
    for (name, _) in std::env::vars_os() {
        let told = name.to_str().unwrap_or_default();
        if told == "OUT_DIR" || told.starts_with("CARGO_PKG_") || told.starts_with("CARGO_MANIFEST_") {
            command.env_remove(name);
        }
    }
    command
}
