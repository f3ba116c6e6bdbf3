//! Sends a document, piece by piece.

use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::sync::OwnedSemaphorePermit;

use super::Document;
use super::inflate::Inflater;
use crate::http::body::{Buffer, Piece, Portions};
use crate::http::progress::{Progress, SavedPhase};

/// A document that is being sent to a client.
#[derive(Debug)]
pub(super) struct Delivery {
    document: Arc<Document>,
    encoding: Encoding,
    progress: Option<(Arc<Progress>, SavedPhase)>,
}

#[derive(Debug)]
enum Encoding {
    /// Compressed, as the files hold it. `file` is the next file to send.
    Stored { file: usize },
    /// Inflated. `left` is the number of bytes that remain.
    Inflated {
        inflater: Inflater,
        left: u64,
        /// True if the next poll yields, so that other tasks can run between two portions.
        yields: bool,
        #[expect(dead_code, reason = "it is held, for as long as this lasts")]
        permit: OwnedSemaphorePermit,
    },
}

impl Delivery {
    /// Creates a delivery of the files as they are.
    pub(super) fn stored(document: &Arc<Document>) -> Delivery {
        Delivery::new(document, Encoding::Stored { file: 0 })
    }

    /// Creates a delivery of the inflated document, which takes `permit`.
    pub(super) fn inflated(document: &Arc<Document>, permit: OwnedSemaphorePermit) -> Delivery {
        let left = document.content.length();
        Delivery::new(document, Encoding::Inflated { inflater: Inflater::default(), left, yields: false, permit })
    }

    fn new(document: &Arc<Document>, encoding: Encoding) -> Delivery {
        Delivery { document: Arc::clone(document), encoding, progress: None }
    }
}

impl Portions for Delivery {
    /// Sets the connection. Its answer is complete only when the whole document is sent.
    fn track(&mut self, progress: &Arc<Progress>) {
        self.progress = Some((Arc::clone(progress), progress.save()));
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
            Encoding::Inflated { left, .. } => *left,
        })
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Piece>> {
        let content = &self.document.content;
        let piece = match &mut self.encoding {
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
        if let Some((progress, saved)) = &self.progress {
            progress.resume(*saved);
        }
        Poll::Ready(piece)
    }
}
