//! Sends a document, piece by piece.

use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::sync::OwnedSemaphorePermit;

use super::Document;
use super::inflate::Inflater;
use crate::http::body::{Buffer, Piece, Portions};
use crate::http::progress::{Mark, Progress};

/// A document that is being sent to a client.
#[derive(Debug)]
pub(super) struct Delivery {
    document: Arc<Document>,
    how: How,
    progress: Option<(Arc<Progress>, Mark)>,
}

#[derive(Debug)]
enum How {
    /// Compressed, as the files hold it. `file` is the next file to send.
    Stored { file: usize },
    /// Inflated. `left` is the number of bytes that remain.
    Inflated {
        inflater: Inflater,
        left: u64,
        /// True if the next poll yields, so that other tasks can run between two portions.
        rests: bool,
        #[expect(dead_code, reason = "it is held, for as long as this lasts")]
        place: OwnedSemaphorePermit,
    },
}

impl Delivery {
    /// Creates a delivery of the files as they are.
    pub(super) fn stored(document: &Arc<Document>) -> Delivery {
        Delivery::new(document, How::Stored { file: 0 })
    }

    /// Creates a delivery of the inflated document, which takes `place`.
    pub(super) fn inflated(document: &Arc<Document>, place: OwnedSemaphorePermit) -> Delivery {
        let left = document.content.length();
        Delivery::new(document, How::Inflated { inflater: Inflater::default(), left, rests: false, place })
    }

    fn new(document: &Arc<Document>, how: How) -> Delivery {
        Delivery { document: Arc::clone(document), how, progress: None }
    }
}

impl Portions for Delivery {
    /// Sets the connection. Its answer is complete only when the whole document is sent.
    fn attend(&mut self, progress: &Arc<Progress>) {
        self.progress = Some((Arc::clone(progress), progress.mark()));
    }

    fn remaining(&self) -> Option<u64> {
        Some(match &self.how {
            How::Stored { file } => {
                let content = &self.document.content;
                (*file..content.files().len())
                    .filter_map(|file| content.range(file))
                    .map(|range| range.len() as u64)
                    .sum()
            }
            How::Inflated { left, .. } => *left,
        })
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Piece>> {
        let content = &self.document.content;
        let piece = match &mut self.how {
            How::Stored { file } => {
                let place = content.files().get(*file).zip(content.range(*file));
                *file += 1;
                place.map(|(region, range)| Piece::Mapped(region.clone(), range))
            }
            How::Inflated { rests, .. } if *rests => {
                *rests = false;
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            How::Inflated { inflater, left, rests, .. } => {
                *rests = true;
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
        if let Some((progress, mark)) = &self.progress {
            progress.resume(*mark);
        }
        Poll::Ready(piece)
    }
}
