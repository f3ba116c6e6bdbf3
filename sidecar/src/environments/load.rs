//! Reads the files of a volume into a snapshot that can be served.

mod core;

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::SystemTime;

use remora_snapshot::{Revision, Snapshot, files};

use super::document::Document;
use super::state::{Environment, Loaded, Sizes};
use crate::counters::reloads::Reload;
use crate::routes;
use crate::volume::{MapError, Region, Volume};
use core::Core;

/// The result of reading a volume.
pub(super) struct LoadedVolume {
    pub(super) loaded: Loaded,
    /// The overrides files that were taken, by slot.
    pub(super) overrides: [Option<Region>; files::OVERRIDES_SLOTS],
    /// The parts beside the core that were refused.
    pub(super) refused: Vec<RefusedPart>,
    /// Reason why another core is served than the file `core` names.
    pub(super) incomplete: Option<Problem>,
}

/// A problem with a volume, and how it is counted.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Problem {
    pub(super) reload: Reload,
    pub(super) text: String,
}

/// A part beside the core that was refused: overrides or the document.
pub(super) struct RefusedPart {
    pub(super) reason: Reason,
    consequence: &'static str,
}

const LAST_GOOD_FILE: &str = "the last good file is served in its place";
const NO_OVERRIDES: &str = "it has no earlier file: identities with overrides in it get flags without these overrides";
const NO_DOCUMENT: &str = "it has no earlier file: requests for the document get 503";

impl fmt::Display for RefusedPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.reason.text, self.consequence)
    }
}

/// Reason why a file beside the core was refused.
pub(super) struct Reason {
    /// Name of the file, and what is wrong with it.
    text: String,
    /// True if the reason may pass without a change of the file.
    pub(super) may_pass: bool,
}

impl Reason {
    /// Reason that lasts until the file changes.
    fn lasting(text: String) -> Reason {
        Reason { text, may_pass: false }
    }
}

impl From<MapError> for Reason {
    fn from(error: MapError) -> Reason {
        Reason { text: error.to_string(), may_pass: error.is_of_system() }
    }
}

/// Reads the files of the volume of an environment, and overrides the flags that the process overrides. `None` if the
/// volume has no core file.
pub(super) fn load(
    volume: &Volume,
    environment: &Environment,
    last_good: &[Option<Region>; files::OVERRIDES_SLOTS],
) -> Result<Option<LoadedVolume>, Problem> {
    let served = environment.loaded.load();
    let previous = served.as_deref();
    let Some(read) = core::core(volume, previous.is_some())? else { return Ok(None) };
    let Core { mut snapshot, bytes: core, incomplete: other_core } = read;
    let mut refused = Vec::new();
    let same_core = previous.is_some_and(|loaded| loaded.snapshot.revision() == snapshot.revision());
    let overrides = attach_overrides(volume, &mut snapshot, last_good, same_core, &mut refused);
    let missing = snapshot.overrides_files().filter(|_| !snapshot.is_whole());
    if let Some(files) = missing {
        let reason = Reason::lasting(format!(
            "the volume has not all of the {files} overrides files: restart the pod if they do not arrive, because it was admitted when fewer files were needed"
        ));
        // Without a complete predecessor, an incomplete snapshot is better than none: most identities get the right
        // flags.
        if previous.is_some_and(|previous| previous.snapshot.is_whole()) {
            let may_pass = refused.iter().any(|part| part.reason.may_pass);
            let reload = if may_pass { Reload::Unreadable } else { Reload::Refused };
            let reasons = refused.into_iter().map(|part| part.reason).chain([reason]).map(|reason| reason.text);
            return Err(Problem { reload, text: reasons.collect::<Vec<_>>().join("; ") });
        }
        refused.push(RefusedPart { reason, consequence: NO_OVERRIDES });
    }
    let now = SystemTime::now();
    let previous_document = previous.and_then(|loaded| loaded.document.as_ref());
    let document = served_document(volume, &snapshot, previous_document, now, &mut refused);
    let complete = other_core.is_none()
        && missing.is_none_or(|files| names_fewer(&overrides, files))
        && document.is_some() == snapshot.serves_document();
    let length = |file: &Region| file.as_ref().len();
    let sizes = Sizes {
        core: length(&core),
        overrides: overrides.iter().flatten().map(length).sum(),
        document: document.iter().flat_map(|document| document.files()).map(length).sum(),
    };
    let content_hash = content_hash(&core, &overrides, document.as_deref());
    let ofrep_end = ofrep_end(snapshot.revision(), &routes::encode(&environment.name));
    let loaded = Loaded {
        snapshot,
        core,
        ofrep_end,
        content_hash,
        since: now,
        document,
        complete,
        in_place: volume.maps_in_place(),
        sizes,
        overridden: None,
        generation: previous.map(|previous| previous.generation).unwrap_or_default().next(),
    };
    let loaded = match &*environment.overrides {
        [] => loaded,
        overrides => loaded.overriding(overrides),
    };
    Ok(Some(LoadedVolume { loaded, overrides, refused, incomplete: other_core }))
}

/// Adds the overrides files of the volume to the snapshot, and the last good one in place of a file that is refused or lost.
/// `same_core` is true if the core is that of the snapshot before. Returns the files that were taken, by slot.
fn attach_overrides(
    volume: &Volume,
    snapshot: &mut Snapshot<Region>,
    last_good: &[Option<Region>; files::OVERRIDES_SLOTS],
    same_core: bool,
    refused: &mut Vec<RefusedPart>,
) -> [Option<Region>; files::OVERRIDES_SLOTS] {
    let mut overrides = [const { None }; files::OVERRIDES_SLOTS];
    for (slot, (place, last_good)) in overrides.iter_mut().zip(last_good).enumerate() {
        let mut reason = None;
        let candidate = match volume.map(&files::overrides(slot)) {
            Ok(Some(region)) => attach(snapshot, slot, region, &mut reason),
            // A file that is missing while the core stays was lost, or is a leftover, which is dropped below.
            Ok(None) if same_core || snapshot.overrides_files().is_some_and(|files| slot < files) => None,
            Ok(None) => continue,
            Err(error) => {
                reason = Some(Reason::from(error));
                None
            }
        };
        *place = candidate.or_else(|| attach(snapshot, slot, last_good.clone()?, &mut reason));
        let consequence = if place.is_some() { LAST_GOOD_FILE } else { NO_OVERRIDES };
        refused.extend(reason.map(|reason| RefusedPart { reason, consequence }));
    }
    // The operator removes the files of a revision with more files only after some minutes.
    if let Some(slots) = snapshot.drop_leftovers() {
        overrides.iter_mut().skip(slots).for_each(|place| *place = None);
    }
    overrides
}

/// Returns the environment's document: that of the volume, or the previous one if it is refused and the previous one belongs
/// to this environment.
fn served_document(
    volume: &Volume,
    snapshot: &Snapshot<Region>,
    previous: Option<&Arc<Document>>,
    now: SystemTime,
    refused: &mut Vec<RefusedPart>,
) -> Option<Arc<Document>> {
    let (document, reason) = match document(volume, snapshot, previous, now) {
        Ok(document) => (document, None),
        Err(reason) => (None, Some(reason)),
    };
    let document = document.or_else(|| {
        let previous = previous.filter(|_| snapshot.serves_document())?;
        snapshot.document(previous.files().to_vec()).is_ok().then(|| Arc::clone(previous))
    });
    let consequence = if document.is_some() { LAST_GOOD_FILE } else { NO_DOCUMENT };
    refused.extend(reason.map(|reason| RefusedPart { reason, consequence }));
    document
}

/// Returns the hash of all that is served.
fn content_hash(core: &Region, overrides: &[Option<Region>], document: Option<&Document>) -> u64 {
    let mut hasher = DefaultHasher::new();
    head(core).hash(&mut hasher);
    for (slot, region) in overrides.iter().enumerate() {
        if let Some(region) = region {
            (slot, head(region)).hash(&mut hasher);
        }
    }
    if let Some(document) = document {
        document.name().hash(&mut hasher);
    }
    hasher.finish()
}

/// Reads the environment's document from its objects, which follow one another. `None` if the document is not served or
/// not complete.
fn document(
    volume: &Volume,
    snapshot: &Snapshot<Region>,
    previous: Option<&Arc<Document>>,
    now: SystemTime,
) -> Result<Option<Arc<Document>>, Reason> {
    if !snapshot.serves_document() {
        return Ok(None);
    }
    let part = |slot| volume.map(&files::document(slot));
    let malformed = |error: &dyn std::fmt::Display| Reason::lasting(format!("{}: {error}", files::document(0)));
    let Some(first) = part(0)? else { return Ok(None) };
    let count = remora_snapshot::Document::<Region>::count(first.as_ref()).map_err(|error| malformed(&error))?;
    let mut parts = vec![first];
    for slot in 1..count {
        let Some(next) = part(slot)? else { return Ok(None) };
        parts.push(next);
    }
    let read = Document::read(parts, snapshot, previous.map(Arc::as_ref), now);
    read.map(|document| Some(Arc::new(document))).map_err(|error| malformed(&error))
}

/// Returns the end of every bulk answer of OFREP, after its flags: the version, and the URI of the event stream. The name
/// of the environment is percent-encoded.
fn ofrep_end(revision: Revision, environment: &str) -> Box<[u8]> {
    let end = format!(
        r#"],"metadata":{{"version":"{revision}"}},"eventStreams":[{{"type":"sse","endpoint":{{"requestUri":"/ofrep/v1/stream?environment={environment}"}},"inactivityDelaySec":120}}]}}"#
    );
    end.into_bytes().into()
}

/// True if the volume seems to name fewer overrides files than the snapshot has: the first ones are present, and no
/// others. The files that a volume names are fixed when the pod is admitted.
fn names_fewer(overrides: &[Option<Region>], files: usize) -> bool {
    let first = overrides.iter().take_while(|file| file.is_some()).count();
    (1..files).contains(&first) && overrides.iter().skip(first).all(Option::is_none)
}

/// Returns the first bytes of a file or a core, which include the checksum of the rest.
fn head(region: &Region) -> &[u8] {
    let bytes = region.as_ref();
    bytes.get(..64).unwrap_or(bytes)
}

/// Adds an overrides file to a snapshot. Returns `None` if the file is refused, and sets `reason` unless it is set.
fn attach(snapshot: &mut Snapshot<Region>, slot: usize, region: Region, reason: &mut Option<Reason>) -> Option<Region> {
    match snapshot.attach_to(slot, region.clone()) {
        Ok(()) => Some(region),
        Err(error) => {
            reason.get_or_insert_with(|| Reason::lasting(format!("{}: {error}", files::overrides(slot))));
            None
        }
    }
}
