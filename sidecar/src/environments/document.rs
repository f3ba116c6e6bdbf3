//! The environment's document, for SDKs that evaluate locally.
//!
//! The mapped files hold the document as gzip, and the sidecar sends it from there: nothing is copied, whatever its
//! size. Clients that do not accept gzip share an inflated copy, which exists only while they ask. Where the copy has no
//! room, the sidecar inflates the document while it sends it, through a window of fixed size.

mod copy;
mod delivery;
mod inflate;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use remora_snapshot::{ReadError, Snapshot};
use tokio::sync::Semaphore;

use crate::clock::since_epoch;
use crate::http::body::Body;
use crate::volume::Region;
use copy::{CopyLimits, CopySlot};
use delivery::Delivery;
use inflate::Inflater;

/// Number of documents that may be sent inflated at the same time. Each takes memory for a window.
const MAX_INFLATING: usize = 8;

/// Reason why files are not a document that can be served.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DocumentError {
    /// The files do not form one document of this environment.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The compressed content is not what the files declare.
    #[error("the document does not inflate to the {0} bytes that it declares: publish it again")]
    Broken(u64),
}

/// A document that is served.
#[derive(Debug)]
pub(crate) struct Document {
    content: remora_snapshot::Document<Region>,
    /// Entity tags of the content, one for each encoding.
    tags: Tags,
    /// Time since 1970 when this process first served this content. The document's own date is not enough: pruning may
    /// change the content under the same date. Another content has another second.
    modified: Duration,
    /// The inflated copy, which documents with the same content share.
    copy: Arc<CopySlot>,
}

#[derive(Debug)]
struct Tags {
    stored: String,
    inflated: String,
}

impl Document {
    /// Reads the files of a document. Another content than that of `previous` gets a later date. The same content is not
    /// checked again, and keeps its inflated copy.
    pub(crate) fn read(
        files: Vec<Region>,
        snapshot: &Snapshot<Region>,
        previous: Option<&Document>,
        now: SystemTime,
    ) -> Result<Document, DocumentError> {
        let content = snapshot.document(files)?;
        let now = Duration::from_secs(since_epoch(now).as_secs());
        let (modified, copy) = match previous {
            Some(previous) if previous.states(&content) => (previous.modified, Arc::clone(&previous.copy)),
            other => {
                if !Inflater::default().yields_all(&content) {
                    return Err(DocumentError::Broken(content.length()));
                }
                let later = |previous: &Document| now.max(previous.modified + Duration::from_secs(1));
                (other.map_or(now, later), Arc::default())
            }
        };
        let name = content.name();
        let tags = Tags { stored: format!("\"{name:016x}-gzip\""), inflated: format!("\"{name:016x}\"") };
        Ok(Document { content, tags, modified, copy })
    }

    /// True if `content` has the same compressed bytes, and declares the same length: the name covers only the bytes.
    fn states(&self, content: &remora_snapshot::Document<Region>) -> bool {
        self.content.name() == content.name() && self.content.length() == content.length()
    }

    /// Hash that identifies the content.
    pub(crate) fn name(&self) -> u64 {
        self.content.name()
    }

    /// The files that hold the document.
    pub(crate) fn files(&self) -> &[Region] {
        self.content.files()
    }

    /// Entity tag of the document as it is stored, in gzip.
    pub(crate) fn stored_tag(&self) -> &str {
        &self.tags.stored
    }

    /// Entity tag of the inflated document.
    pub(crate) fn inflated_tag(&self) -> &str {
        &self.tags.inflated
    }

    /// Time since 1970 when this process first served this content, in whole seconds.
    pub(crate) fn modified(&self) -> Duration {
        self.modified
    }

    /// Time of the document's last change since 1970, as Flagsmith states it, rounded up to whole seconds.
    pub(crate) fn updated_at(&self) -> Option<Duration> {
        self.content.updated_at()
    }

    /// Returns the document as it is stored, in gzip.
    pub(crate) fn stored(self: &Arc<Document>) -> Body {
        Body::portions(Box::new(Delivery::stored(self)))
    }

    /// Returns the inflated document. `None` if too many are being sent.
    pub(crate) fn inflated(self: &Arc<Document>, inflate_slots: &InflateSlots) -> Option<Body> {
        let delivery = match self.copy.made() {
            Some(copy) => Delivery::copied(self, copy),
            None => {
                let permit = Arc::clone(&inflate_slots.places).try_acquire_owned().ok()?;
                Delivery::inflated(self, permit, inflate_slots.copies.clone())
            }
        };
        Some(Body::portions(Box::new(delivery)))
    }
}

/// Places of documents that are sent inflated, and the bounds of inflated copies.
#[derive(Debug)]
pub(crate) struct InflateSlots {
    /// Places of documents that are inflated while they are sent. Their number is at most [`MAX_INFLATING`].
    places: Arc<Semaphore>,
    copies: CopyLimits,
}

impl Default for InflateSlots {
    fn default() -> InflateSlots {
        InflateSlots { places: Arc::new(Semaphore::new(MAX_INFLATING)), copies: CopyLimits::default() }
    }
}

#[cfg(test)]
mod tests;
