//! Environment documents: the target parses, prunes and compiles a document, reads the result, and evaluates it.
//!
//! The input is the document. The length of the input chooses the settings, so that an input is a plain JSON file.

use remora_compile::document::Original;
use remora_compile::{BooleanFlags, DisabledFlags, EnvironmentFlags, ObjectFlags, Ofrep, Options, compile_to_files_of};
use remora_snapshot::{RequestState, Role, Snapshot};

use crate::dialects::{Shape, assert_agreement};
use crate::{assert_printable, context, pipeline};

/// Limit of a file in bytes. It is small, so that a short document gets separate files for overrides and for the
/// document.
const SMALL_FILES: usize = 12_000;

/// Asserts that a document compiles, and that all forms of its answers agree.
pub fn run(data: &[u8]) {
    let pruned = match pipeline::parsed(data) {
        Ok(pruned) => pruned,
        Err(error) => return drop(error.to_string()),
    };
    let choice = data.len();
    let original = (choice & 1 == 1).then(|| Original::new(data.to_vec()));
    let options = options(choice >> 1, original.as_ref());
    let largest_file = if choice & 64 == 0 { usize::MAX } else { SMALL_FILES };
    let compiled = match compile_to_files_of(largest_file, &pruned, &options) {
        Ok(compiled) => compiled,
        Err(error) => return assert_printable(&error.to_string()),
    };
    pipeline::assert_deterministic(&pruned, largest_file, &options, &compiled);
    compiled.findings.iter().for_each(|finding| assert_printable(&finding.to_string()));
    let snapshot = pipeline::read(&compiled);
    assert_eq!(snapshot.revision(), compiled.revision);
    let shape = Shape { hides_disabled: pruned.document.hides_disabled_flags(), ofrep: options.ofrep };
    let mut request = RequestState::default();
    for context in context::suggested(&pruned.document) {
        assert_agreement(&snapshot, &mut request, &context, shape);
    }
    whole_answers(&snapshot);
    snapshot.describe();
    snapshot.role_of(&pruned.document.api_key).expect("the client key opens its environment");
}

fn options(choice: usize, original: Option<&Original>) -> Options<'_> {
    Options {
        environment: "fuzz",
        server_keys: &["ser.key"],
        environment_flags: match choice % 3 {
            0 => EnvironmentFlags::Plain,
            1 => EnvironmentFlags::IdentityFree,
            _ => EnvironmentFlags::AllSegments,
        },
        ofrep: Ofrep {
            boolean_flags: if choice & 4 == 0 { BooleanFlags::Value } else { BooleanFlags::Enabled },
            disabled_flags: if choice & 8 == 0 { DisabledFlags::CodeDefault } else { DisabledFlags::Value },
            object_flags: if choice & 16 == 0 { ObjectFlags::Text } else { ObjectFlags::Object },
        },
        document: original,
        ..Options::default()
    }
}

/// Asserts that the stored answer without an identity equals the evaluated one.
fn whole_answers(snapshot: &Snapshot<&[u8]>) {
    for role in [Role::Client, Role::Server] {
        let mut evaluated = Vec::new();
        snapshot.write_flags(&mut RequestState::default(), role, &mut evaluated);
        assert_eq!(String::from_utf8_lossy(&evaluated), String::from_utf8_lossy(snapshot.flags(role)));
    }
}
