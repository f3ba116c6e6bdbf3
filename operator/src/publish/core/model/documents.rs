//! Documents of the model.

use remora_snapshot::{
    model::{Context, Environment, Feature, IdentityFlag, IdentityOverride},
    write,
};

use super::super::{File, Snapshot};
use crate::api::Revision;

/// Size in bytes beyond which overrides are divided further.
const LIMIT: usize = 2_000;

/// A document, by the files of its snapshot.
#[derive(Clone, Copy, Debug)]
pub(super) struct Document {
    /// Number of parts of the core. 0: the core is one object.
    pub(super) parts: usize,
    /// Number of files with overrides.
    pub(super) overrides: usize,
}

impl Document {
    /// Returns the snapshot of this document as the one with this number.
    pub(super) fn snapshot(self, number: usize) -> Snapshot {
        // The core has the value twice.
        let size = if self.parts == 0 { 100 } else { self.parts * 500_000 - 100_000 };
        let mut identities = (0..20).map(|steps| steps * 20);
        let identities = identities.find(|count| snapshot(number, 100, *count).overrides_files() == self.overrides);
        let snapshot = snapshot(number, size, identities.unwrap());
        assert_eq!((snapshot.core_parts(), snapshot.overrides_files()), (self.parts, self.overrides), "{self:?}");
        snapshot
    }
}

fn snapshot(number: usize, size: usize, identities: usize) -> Snapshot {
    let identity = |identity: usize| IdentityOverride {
        identifier: format!("user-{identity}"),
        flags: vec![IdentityFlag { feature: 1, enabled: true, value: format!("\"{number}\""), variant: None }],
    };
    let environment = Environment {
        name: "e".to_owned(),
        client_key: "k".to_owned(),
        features: vec![Feature {
            id: 1,
            name: "f".to_owned(),
            kind: "STANDARD".to_owned(),
            served: true,
            server_only: false,
            default: Context { enabled: true, value: format!("\"{number}{}\"", "x".repeat(size)), split: None },
        }],
        identity_overrides: (0..identities).map(identity).collect(),
        ..Environment::default()
    };
    let written = write(&environment, LIMIT).unwrap();
    let files = written.files.into_iter().map(|file| File::new(file.name, file.bytes)).collect();
    Snapshot::new(Revision::new(written.revision.to_string()), files)
}
