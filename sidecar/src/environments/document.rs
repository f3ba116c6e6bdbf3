//! The environment's document, for SDKs that evaluate locally.
//!
//! The mapped files hold the document as gzip, and the sidecar sends it from there: nothing is copied, whatever its
//! size. Clients that do not accept gzip share an inflated copy, which exists only while they ask. Where the copy has no
//! room, the sidecar inflates the document while it sends it, through a window of fixed size.

mod copy;
mod delivery;
mod inflate;

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::header::{
    ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, ETAG, IF_MODIFIED_SINCE, IF_NONE_MATCH, LAST_MODIFIED,
    RETRY_AFTER, VARY,
};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, StatusCode};
use remora_snapshot::{ReadError, Snapshot};
use tokio::sync::Semaphore;

use crate::clock::since_epoch;
use crate::http::answer::{Answer, ContentType};
use crate::http::body::Body;
use crate::http::entity_tag::matches_tag;
use crate::volume::Region;
use copy::{CopyLimits, CopySlot};
use delivery::Delivery;
use inflate::Inflater;

/// Number of documents that may be sent inflated at the same time. Each takes memory for a window.
const MAX_INFLATING: usize = 8;

/// Reason why files are not a document that can be served.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refused {
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
    ) -> Result<Document, Refused> {
        let content = snapshot.document(files)?;
        let now = Duration::from_secs(since_epoch(now).as_secs());
        let (modified, copy) = match previous {
            Some(previous) if previous.name() == content.name() => (previous.modified, Arc::clone(&previous.copy)),
            other => {
                if !Inflater::default().yields_all(&content) {
                    return Err(Refused::Broken(content.length()));
                }
                let later = |previous: &Document| now.max(previous.modified + Duration::from_secs(1));
                (other.map_or(now, later), Arc::default())
            }
        };
        let name = content.name();
        let tags = Tags { stored: format!("\"{name:016x}-gzip\""), inflated: format!("\"{name:016x}\"") };
        Ok(Document { content, tags, modified, copy })
    }

    /// Hash that identifies the content.
    pub(crate) fn name(&self) -> u64 {
        self.content.name()
    }

    /// The files that hold the document.
    pub(crate) fn files(&self) -> &[Region] {
        self.content.files()
    }

    /// Answers a request that is authorized to read the document.
    pub(crate) fn answer(self: &Arc<Document>, parts: &Parts, inflate_slots: &InflateSlots) -> Answer {
        let stored = accepts_gzip(&parts.headers);
        let tag = if stored { &self.tags.stored } else { &self.tags.inflated };
        let answer = if self.is_known(&parts.headers) {
            Answer::empty(StatusCode::NOT_MODIFIED)
        } else if stored {
            Answer::new(StatusCode::OK, ContentType::Json, Body::portions(Box::new(Delivery::stored(self))))
                .with(CONTENT_ENCODING, HeaderValue::from_static("gzip"))
        } else {
            let delivery = match self.copy.made() {
                Some(copy) => Delivery::copied(self, copy),
                None => match Arc::clone(&inflate_slots.places).try_acquire_owned() {
                    Ok(permit) => Delivery::inflated(self, permit, inflate_slots.copies.clone()),
                    Err(_) => {
                        let busy = "{\"detail\":\"too many documents are being sent inflated: accept gzip\"}";
                        return Answer::constant(StatusCode::SERVICE_UNAVAILABLE, busy)
                            .with(RETRY_AFTER, HeaderValue::from_static("1"));
                    }
                },
            };
            Answer::new(StatusCode::OK, ContentType::Json, Body::portions(Box::new(delivery)))
        };
        let date = httpdate::fmt_http_date(UNIX_EPOCH + self.modified);
        let mut answer = answer
            .with(VARY, HeaderValue::from_static("Accept-Encoding"))
            .with(CACHE_CONTROL, HeaderValue::from_static("private, no-cache"));
        for (name, value) in [(ETAG, HeaderValue::try_from(tag)), (LAST_MODIFIED, HeaderValue::try_from(date))] {
            if let Ok(value) = value {
                answer = answer.with(name, value);
            }
        }
        answer
    }

    /// True if the client has this content already, by its entity tag or, without one, by its date.
    fn is_known(&self, headers: &HeaderMap) -> bool {
        if headers.contains_key(IF_NONE_MATCH) {
            let names =
                |tag: &str| headers.get_all(IF_NONE_MATCH).iter().any(|header| matches_tag(header.as_bytes(), tag));
            return names(&self.tags.stored) || names(&self.tags.inflated);
        }
        let since =
            headers.get(IF_MODIFIED_SINCE).and_then(|since| httpdate::parse_http_date(since.to_str().ok()?).ok());
        since.is_some_and(|since| since_epoch(since) >= self.modified)
    }
}

/// True if the client accepts gzip.
fn accepts_gzip(headers: &HeaderMap) -> bool {
    let mut any = false;
    for header in headers.get_all(ACCEPT_ENCODING) {
        for entry in header.to_str().unwrap_or_default().split(',') {
            let (coding, weight) = entry.split_once(';').unwrap_or((entry, ""));
            let weight = weight.trim().strip_prefix("q=").map_or(Ok(1.0), str::parse::<f32>);
            let wanted = weight.is_ok_and(|weight| weight > 0.0);
            match coding.trim() {
                // An entry for `gzip` takes precedence over the wildcard.
                coding if coding.eq_ignore_ascii_case("gzip") => return wanted,
                "*" => any |= wanted,
                _ => {}
            }
        }
    }
    any
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
