//! Overrides that a request brings in a signed header, for people who test.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;
use std::time::SystemTime;

use http::request::Parts;

use super::headers::{OVERRIDE, header};
use crate::environments::state::{Environment, Loaded, State};
use crate::overrides::signed::{self, MAX_KEY, Refused};

/// Returns what is served with the overrides of the request's header. `None` if the request has no such header, or if
/// this process does not read it.
///
/// # Errors
/// The text of the refusal: the header is not valid. An answer without the overrides would be wrong for the person who
/// tests.
#[inline]
pub(super) fn overridden(
    state: &State,
    parts: &Parts,
    environment: &Environment,
    loaded: &Loaded,
) -> Result<Option<Box<Loaded>>, String> {
    let Some(key) = &state.override_key else { return Ok(None) };
    let Some(header) = header(parts, &OVERRIDE) else { return Ok(None) };
    match read(header, key, environment) {
        Ok(overrides) => Ok(Some(Box::new(environment.with_overrides(loaded, overrides)))),
        Err(refused) => Err(format!("header X-Remora-Override: {refused}")),
    }
}

/// Reads the header with the key that the file has now. Kubelet replaces the file when the Secret changes.
#[cold]
fn read(header: &[u8], key: &Path, environment: &Environment) -> Result<Vec<remora_snapshot::FlagOverride>, Refused> {
    let key = read_key(key).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => Refused::NoKey,
        other => Refused::UnreadableKey(other),
    })?;
    signed::read(header, &key, &environment.name, SystemTime::now())
}

fn read_key(file: &Path) -> io::Result<Vec<u8>> {
    /// Room for white space at the end of a key.
    const ROOM: usize = 16;
    let mut key = Vec::new();
    File::open(file)?.take((MAX_KEY + ROOM) as u64).read_to_end(&mut key)?;
    Ok(key)
}
