//! Reads the files of a volume into a snapshot that can be served.

mod core;

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::SystemTime;

use remora_snapshot::{Revision, Snapshot, files};

use super::document::Document;
use super::state::Loaded;
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
    /// True if one of these reasons may pass without a change of the files.
    pub(super) unreadable: bool,
    /// Reason why another core is served than the file `core` names.
    pub(super) incomplete: Option<(Reload, String)>,
}

/// A part beside the core that was refused: overrides or the document.
pub(super) struct RefusedPart {
    /// Name of the file, and what is wrong with it.
    pub(super) reason: String,
    pub(super) consequence: Consequence,
}

/// Consequence of the refusal of a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Consequence {
    /// The last good file is served in its place.
    LastGoodFile,
    /// No earlier file of these overrides can be served.
    NoOverrides,
    /// No earlier document can be served.
    NoDocument,
}

impl fmt::Display for RefusedPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let consequence = match self.consequence {
            Consequence::LastGoodFile => "the last good file is served in its place",
            Consequence::NoOverrides => {
                "it has no earlier file: identities with overrides in it get flags without these overrides"
            }
            Consequence::NoDocument => "it has no earlier file: requests for the document get 503",
        };
        write!(f, "{}; {consequence}", self.reason)
    }
}

/// Reason why a file beside the core was refused.
struct Refusal {
    reason: String,
    /// True if the reason may pass without a change of the file.
    unreadable: bool,
}

impl From<MapError> for Refusal {
    fn from(error: MapError) -> Refusal {
        Refusal { reason: error.to_string(), unreadable: error.is_of_system() }
    }
}

/// Reads the files of the volume of an environment. `None` if the volume has no core file.
pub(super) fn load(
    volume: &Volume,
    environment: &str,
    previous: Option<&Loaded>,
    last_good: &[Option<Region>; files::OVERRIDES_SLOTS],
) -> Result<Option<LoadedVolume>, (Reload, String)> {
    let Some(read) = core::core(volume, previous.is_some())? else { return Ok(None) };
    let Core { mut snapshot, bytes: core, incomplete: other_core } = read;
    let mut sizes = [core.as_ref().len(), 0, 0];
    let mut hasher = DefaultHasher::new();
    head(&core).hash(&mut hasher);

    // A file that is missing while the core stays was lost, or is a leftover, which is dropped below.
    let same_core = previous.is_some_and(|loaded| loaded.snapshot.revision() == snapshot.revision());
    let (mut refused, mut unreadable) = (Vec::new(), false);
    let mut overrides = [const { None }; files::OVERRIDES_SLOTS];
    for (slot, (place, last_good)) in overrides.iter_mut().zip(last_good).enumerate() {
        let mut reason = None;
        let candidate = match volume.map(&files::overrides(slot)) {
            Ok(Some(region)) => attach(&mut snapshot, slot, region, &mut reason),
            Ok(None) if same_core || snapshot.overrides_files().is_some_and(|files| slot < files) => None,
            Ok(None) => continue,
            Err(error) => {
                unreadable |= error.is_of_system();
                reason = Some(error.to_string());
                None
            }
        };
        *place = candidate.or_else(|| attach(&mut snapshot, slot, last_good.clone()?, &mut reason));
        let consequence = if place.is_some() { Consequence::LastGoodFile } else { Consequence::NoOverrides };
        refused.extend(reason.map(|reason| RefusedPart { reason, consequence }));
    }
    // The operator removes the files of a revision with more files only after some minutes.
    if let Some(slots) = snapshot.drop_leftovers() {
        overrides.iter_mut().skip(slots).for_each(|place| *place = None);
    }
    for (slot, region) in overrides.iter().enumerate() {
        if let Some(region) = region {
            sizes[1] += region.as_ref().len();
            (slot, head(region)).hash(&mut hasher);
        }
    }
    let incomplete = snapshot.overrides_files().filter(|_| !snapshot.is_whole());
    if let Some(files) = incomplete {
        let reason = format!(
            "the volume has not all of the {files} overrides files: restart the pod if they do not arrive, because it was admitted when fewer files were needed"
        );
        // Without a complete predecessor, an incomplete snapshot is better than none: most identities get the right
        // flags.
        if previous.is_some_and(|previous| previous.snapshot.is_whole()) {
            let reload = if unreadable { Reload::Unreadable } else { Reload::Refused };
            let reasons = refused.into_iter().map(|part| part.reason).chain([reason]);
            return Err((reload, reasons.collect::<Vec<_>>().join("; ")));
        }
        refused.push(RefusedPart { reason, consequence: Consequence::NoOverrides });
    }
    let now = SystemTime::now();
    let generation = previous.map(|previous| previous.generation).unwrap_or_default().next();
    let previous_document = previous.and_then(|loaded| loaded.document.as_ref());
    let (document, refusal) = match document(volume, &snapshot, previous_document, now) {
        Ok(document) => (document, None),
        Err(refusal) => (None, Some(refusal)),
    };
    // If the new document is refused, the last good one stays, as long as it belongs to this environment.
    let document = document.or_else(|| {
        let previous = previous_document.filter(|_| snapshot.serves_document())?;
        snapshot.document(previous.files().to_vec()).is_ok().then(|| Arc::clone(previous))
    });
    if let Some(Refusal { reason, unreadable: may_pass }) = refusal {
        unreadable |= may_pass;
        let consequence = if document.is_some() { Consequence::LastGoodFile } else { Consequence::NoDocument };
        refused.push(RefusedPart { reason, consequence });
    }
    if let Some(document) = &document {
        sizes[2] = document.files().iter().map(|file| file.as_ref().len()).sum();
        document.name().hash(&mut hasher);
    }
    let complete = other_core.is_none()
        && incomplete.is_none_or(|files| names_fewer(&overrides, files))
        && document.is_some() == snapshot.serves_document();
    let in_place = volume.maps_in_place();
    let content_hash = hasher.finish();
    let ofrep_end = ofrep_end(snapshot.revision(), &routes::encode(environment));
    let loaded = Loaded {
        snapshot,
        core,
        ofrep_end,
        content_hash,
        since: now,
        document,
        complete,
        in_place,
        sizes,
        overridden: None,
        generation,
    };
    Ok(Some(LoadedVolume { loaded, overrides, refused, unreadable, incomplete: other_core }))
}

/// Reads the environment's document from its objects, which follow one another. `None` if the document is not served or
/// not complete.
fn document(
    volume: &Volume,
    snapshot: &Snapshot<Region>,
    previous: Option<&Arc<Document>>,
    now: SystemTime,
) -> Result<Option<Arc<Document>>, Refusal> {
    if !snapshot.serves_document() {
        return Ok(None);
    }
    let part = |slot| volume.map(&files::document(slot));
    let malformed = |error: &dyn std::fmt::Display| {
        let reason = format!("{}: {error}", files::document(0));
        Refusal { reason, unreadable: false }
    };
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
fn attach(snapshot: &mut Snapshot<Region>, slot: usize, region: Region, reason: &mut Option<String>) -> Option<Region> {
    match snapshot.attach_to(slot, region.clone()) {
        Ok(()) => Some(region),
        Err(error) => {
            reason.get_or_insert_with(|| format!("{}: {error}", files::overrides(slot)));
            None
        }
    }
}
