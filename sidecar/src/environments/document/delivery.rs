//! Sends a document, piece by piece.

use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::sync::OwnedSemaphorePermit;

use super::Document;
use super::copy::{self, CopyLimits, InflatedCopy};
use super::inflate::Inflater;
use crate::http::body::{Buffer, Piece, Portions};
use crate::http::progress::Progress;

/// Largest piece of an inflated copy in bytes. The connection notes its progress between two pieces.
const PIECE: usize = 256 * 1024;

/// A document that is being sent to a client.
#[derive(Debug)]
pub(super) struct Delivery {
    document: Arc<Document>,
    encoding: Encoding,
    progress: Option<Arc<Progress>>,
}

#[derive(Debug)]
enum Encoding {
    /// Compressed, as the files hold it. `file` is the next file to send.
    Stored { file: usize },
    /// Inflated, from the copy. `sent` is the number of bytes that are sent.
    Copied { copy: Arc<InflatedCopy>, sent: usize },
    /// Waits for the copy, and inflates the document if there is no room for one.
    Waiting {
        /// Bounds of the copy. `None` once it was asked for.
        limits: Option<CopyLimits>,
        permit: Option<OwnedSemaphorePermit>,
    },
    /// Inflated. `left` is the number of bytes that remain.
    Inflated {
        inflater: Inflater,
        left: u64,
        /// True if the next poll yields, so that other tasks can run between two portions.
        yields: bool,
        #[expect(dead_code, reason = "the permit is returned when the delivery ends")]
        permit: Option<OwnedSemaphorePermit>,
    },
}

impl Delivery {
    /// Creates a delivery of the files as they are.
    pub(super) fn stored(document: &Arc<Document>) -> Delivery {
        Delivery::new(document, Encoding::Stored { file: 0 })
    }

    /// Creates a delivery of the inflated copy.
    pub(super) fn copied(document: &Arc<Document>, copy: Arc<InflatedCopy>) -> Delivery {
        Delivery::new(document, Encoding::Copied { copy, sent: 0 })
    }

    /// Creates a delivery of the inflated document that makes a copy within `limits`. Without a copy, it inflates the
    /// document itself, and takes `permit` until the end.
    pub(super) fn inflated(document: &Arc<Document>, permit: OwnedSemaphorePermit, limits: CopyLimits) -> Delivery {
        Delivery::new(document, Encoding::Waiting { limits: Some(limits), permit: Some(permit) })
    }

    fn new(document: &Arc<Document>, encoding: Encoding) -> Delivery {
        Delivery { document: Arc::clone(document), encoding, progress: None }
    }
}

impl Portions for Delivery {
    /// Sets the connection. Its answer is complete only when the whole document is sent.
    fn track(&mut self, progress: &Arc<Progress>) {
        self.progress = Some(Arc::clone(progress));
    }

    fn remaining(&self) -> Option<u64> {
        Some(match &self.encoding {
            Encoding::Stored { file } => {
                let content = &self.document.content;
                (*file..content.files().len())
                    .filter_map(|file| content.range(file))
                    .map(|range| range.len() as u64)
                    .sum()
            }
            Encoding::Copied { copy, sent } => copy.bytes.as_ref().len().saturating_sub(*sent) as u64,
            Encoding::Waiting { .. } => self.document.content.length(),
            Encoding::Inflated { left, .. } => *left,
        })
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Piece>> {
        // An answer without a body, such as that of HEAD, never comes here: it makes no copy, and ends with its head.
        if let Some(progress) = &self.progress {
            progress.producing();
        }
        if let Encoding::Waiting { limits, permit } = &mut self.encoding {
            if let Some(limits) = limits.take() {
                copy::make(&self.document, &limits);
            }
            self.encoding = match ready!(self.document.copy.poll(cx)) {
                Some(copy) => Encoding::Copied { copy, sent: 0 },
                None => {
                    let left = self.document.content.length();
                    Encoding::Inflated { inflater: Inflater::default(), left, yields: false, permit: permit.take() }
                }
            };
        }
        let content = &self.document.content;
        let piece = match &mut self.encoding {
            // The code above has replaced this state.
            Encoding::Waiting { .. } => None,
            Encoding::Copied { copy, sent } => {
                let end = copy.bytes.as_ref().len().min(sent.saturating_add(PIECE));
                let range = std::mem::replace(sent, end)..end;
                (!range.is_empty()).then(|| Piece::Mapped(copy.bytes.clone(), range))
            }
            Encoding::Stored { file } => {
                let part = content.files().get(*file).zip(content.range(*file));
                *file += 1;
                part.map(|(region, range)| Piece::Mapped(region.clone(), range))
            }
            Encoding::Inflated { yields, .. } if *yields => {
                *yields = false;
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            Encoding::Inflated { inflater, left, yields, .. } => {
                *yields = true;
                // The document was checked when it was loaded, so inflating does not fail here. If it did, the
                // connection would be closed.
                let bytes = inflater.next(content).unwrap_or_default();
                *left = left.saturating_sub(bytes.len() as u64);
                (!bytes.is_empty()).then(|| {
                    let mut buffer = Buffer::take();
                    buffer.bytes().extend_from_slice(bytes);
                    Piece::Built(buffer, 0)
                })
            }
        };
        // Hyper asks for no piece after the last one, whose end it knows by the length.
        if let Some(progress) = self.progress.as_ref().filter(|_| piece.is_none() || self.remaining() == Some(0)) {
            progress.produced();
        }
        Poll::Ready(piece)
    }
}
