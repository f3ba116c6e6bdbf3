//! Reads snapshots without the operator, and sets the identities that evaluate them.

use std::path::Path;

use anyhow::Context;
use remora_snapshot::{Pointer, RequestState, Snapshot, files};

use crate::population::value;
use crate::profile::ENVIRONMENT;
use crate::request::TRAITS;

/// Reads the snapshot in a directory for sidecars.
///
/// # Errors
/// The directory has no valid snapshot.
pub fn read(directory: &Path) -> anyhow::Result<Snapshot<Vec<u8>>> {
    let data = directory.join(ENVIRONMENT).join("..data");
    let core = std::fs::read(data.join(files::CORE)).with_context(|| data.display().to_string())?;
    let mut snapshot = match Pointer::read(&core)? {
        None => Snapshot::read(core)?,
        Some(pointer) => {
            let mut core = Vec::with_capacity(pointer.length());
            for part in 0..files::part_lengths(pointer.length()).count() {
                core.extend(std::fs::read(data.join(files::core_part(pointer.set(), part)))?);
            }
            Snapshot::read_parts(core, &pointer)?
        }
    };
    for slot in 0..files::OVERRIDES_SLOTS {
        let path = data.join(files::overrides(slot));
        if path.exists() {
            snapshot.attach(std::fs::read(path)?)?;
        }
    }
    Ok(snapshot)
}

/// Sets the traits of every request in an identity.
pub fn give_traits<B: AsRef<[u8]>>(snapshot: &Snapshot<B>, identity: &mut RequestState) {
    for (key, token) in TRAITS {
        snapshot.set_trait(identity, key, value(token));
    }
}
