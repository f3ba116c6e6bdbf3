//! Reads the core of a volume: one file, or parts that a pointer names.

use remora_snapshot::{Pointer, Snapshot, core_length, files};

use super::Problem;
use crate::counters::reloads::Reload;
use crate::volume::{MapError, Region, Volume};

/// A core that can be served.
pub(super) struct Core {
    pub(super) snapshot: Snapshot<Region>,
    pub(super) bytes: Region,
    /// Reason why this is not the core that the file `core` names.
    pub(super) incomplete: Option<Problem>,
}

/// Reads the core of a volume. `None` if the volume has no file `core`.
///
/// If the parts that a pointer names are incomplete, or mixed with those of another revision, nothing is read. Only if
/// nothing is served yet, the other set of parts is read, which usually holds the revision before.
pub(super) fn core(volume: &Volume, serves: bool) -> Result<Option<Core>, Problem> {
    let file =
        volume.map(files::CORE).map_err(|error| Problem { reload: Reload::Unreadable, text: error.to_string() })?;
    let Some(file) = file else { return Ok(None) };
    let refused = |error| Problem { reload: Reload::Refused, text: format!("{}: {error}", files::CORE) };
    let Some(pointer) = Pointer::read(file.as_ref()).map_err(refused)? else {
        return read(file, Snapshot::read).map(Some).map_err(refused);
    };
    drop(file);
    let Problem { reload, text } = match pointed(volume, &pointer) {
        Ok(core) => return Ok(Some(core)),
        Err(problem) => problem,
    };
    let (revision, set) = (pointer.revision(), pointer.set());
    let text = format!("{} names revision {revision} in the parts of set {set}: {text}", files::CORE);
    match serves {
        true => Err(Problem { reload, text }),
        false => match other(volume, &pointer) {
            Ok(core) => Ok(Some(Core { incomplete: Some(Problem { reload, text }), ..core })),
            Err(other) => {
                let reload = if other.reload == Reload::Unreadable { other.reload } else { reload };
                Err(Problem { reload, text: format!("{text}; set {}: {}", set.other(), other.text) })
            }
        },
    }
}

/// Reads the core from the set that the pointer names.
fn pointed(volume: &Volume, pointer: &Pointer) -> Result<Core, Problem> {
    let parts = volume.map_parts(pointer.set(), pointer.length()).map_err(|error| problem(&error))?;
    read(parts, |parts| Snapshot::read_parts(parts, pointer)).map_err(|error| incomplete(&error))
}

/// Reads the core from the other set.
fn other(volume: &Volume, pointer: &Pointer) -> Result<Core, Problem> {
    let set = pointer.set().other();
    let name = files::core_part(set, 0);
    let first = volume.map(&name).map_err(|error| problem(&error))?;
    let first = first.ok_or_else(|| incomplete(&format!("{name} is missing")))?;
    let length = core_length(first.as_ref()).map_err(|error| incomplete(&format!("{name}: {error}")))?;
    drop(first);
    let parts = volume.map_parts(set, length).map_err(|error| problem(&error))?;
    read(parts, |parts| Snapshot::read_other_parts(parts, pointer)).map_err(|error| incomplete(&error))
}

/// Classifies an error: `Unreadable` may pass without a change, `Incomplete` lasts until the files change.
fn problem(error: &MapError) -> Problem {
    let reload = if error.is_of_system() { Reload::Unreadable } else { Reload::Incomplete };
    Problem { reload, text: error.to_string() }
}

fn incomplete(problem: &impl ToString) -> Problem {
    Problem { reload: Reload::Incomplete, text: problem.to_string() }
}

fn read<E>(bytes: Region, read: impl FnOnce(Region) -> Result<Snapshot<Region>, E>) -> Result<Core, E> {
    Ok(Core { snapshot: read(bytes.clone())?, bytes, incomplete: None })
}
