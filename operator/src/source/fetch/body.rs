//! Reads an answer's body, with a bound on its size before and after decompression.

use std::io::{self, Write};

use flate2::write::GzDecoder;
use reqwest::{Response, header};
use tokio::time::{Instant, timeout_at};

use super::{
    error::{Error, SMALLER_DOCUMENT},
    memory_budget::OverBudget,
    minimum_rate::{MinimumRate, Progress},
};

/// Bytes that a body may have beyond [`WIRE_RATIO`] times its content (64 KiB). They have to hold what the decoder has read
/// and not written yet, which is up to 32 KiB.
const WIRE_SLACK: usize = 64 << 10;
/// Bytes of a body for each byte of its content. Every compression that saves something has less than one. Data without
/// content would take time to decompress that no bound on the content ends.
const WIRE_RATIO: usize = 2;

/// Reason why a body was not read to its end.
#[derive(Debug)]
pub(super) enum Unread {
    /// The body exceeds the size limit.
    TooLarge(Box<Error>),
    /// The memory budget has too few free bytes.
    OverBudget(OverBudget),
    /// The body arrives below this rate.
    TooSlow(MinimumRate),
    /// The connection broke off, or the compressed data is invalid.
    Broken(String),
}

/// Reads and decompresses the whole body: at most `limit` bytes before and after decompression, and not many more before
/// than after it. `progress` counts the decompressed bytes. `grow_to` reserves memory for the number of bytes it is given.
pub(super) async fn read(
    mut response: Response,
    limit: usize,
    progress: &mut Progress,
    grow_to: impl Fn(usize) -> Result<(), OverBudget>,
) -> Result<Vec<u8>, Unread> {
    let declared = response.content_length().and_then(|length| usize::try_from(length).ok());
    if declared.is_some_and(|length| length > limit) {
        return Err(too_large("the answer", limit));
    }
    grow_to(declared.unwrap_or_default()).map_err(Unread::OverBudget)?;
    let mut sink = Sink::new(&response, Bounded { bytes: Vec::new(), limit, grow_to, refused: None })?;
    let mut wire = 0_usize;
    loop {
        let (deadline, rate) = progress.deadline();
        let chunk = timeout_at(deadline, response.chunk()).await.map_err(|_| Unread::TooSlow(rate))?;
        let Some(chunk) = chunk.map_err(|error| broken(&error))? else { break };
        wire = wire.saturating_add(chunk.len());
        if wire > limit {
            return Err(too_large("the answer", limit));
        }
        // A chunk may inflate to a thousand times its size. The sink stops at the limit, or where the memory budget ends,
        // within the chunk.
        let before = sink.len();
        sink.write(&chunk).map_err(|error| sink.refusal(&error, limit))?;
        progress.arrived(sink.len() - before, Instant::now());
        if wire > sink.len().saturating_mul(WIRE_RATIO).saturating_add(WIRE_SLACK) {
            return Err(Unread::Broken("the answer is much larger compressed than decompressed".to_owned()));
        }
    }
    sink.finish(limit)
}

fn broken(error: &reqwest::Error) -> Unread {
    if error.is_timeout() {
        Unread::TooSlow(Progress::of_silence())
    } else {
        Unread::Broken("the answer broke off".to_owned())
    }
}

fn too_large(what: &'static str, limit: usize) -> Unread {
    Unread::TooLarge(Box::new(Error::BodyTooLarge { what, limit, remedy: SMALLER_DOCUMENT }))
}

fn inflation(error: &io::Error, limit: usize) -> Unread {
    match error.kind() {
        io::ErrorKind::FileTooLarge => too_large("the decompressed answer", limit),
        // The decoder takes no bytes after the end of the first member.
        io::ErrorKind::WriteZero => Unread::Broken("the answer has data after the end of its compression".to_owned()),
        _ => Unread::Broken("the answer's compression is broken".to_owned()),
    }
}

enum Sink<G: Fn(usize) -> Result<(), OverBudget>> {
    Plain(Bounded<G>),
    /// Decodes one gzip member. Each further one would cost a new decoder.
    Gzip(Box<GzDecoder<Bounded<G>>>),
}

impl<G: Fn(usize) -> Result<(), OverBudget>> Sink<G> {
    fn new(response: &Response, bounded: Bounded<G>) -> Result<Self, Unread> {
        let encoding =
            response.headers().get(header::CONTENT_ENCODING).map(|value| value.as_bytes().to_ascii_lowercase());
        match encoding.as_deref() {
            None | Some(b"identity") => Ok(Self::Plain(bounded)),
            Some(b"gzip" | b"x-gzip") => Ok(Self::Gzip(Box::new(GzDecoder::new(bounded)))),
            Some(_) => Err(Unread::Broken("the answer has a content encoding that nobody asked for".to_owned())),
        }
    }

    fn write(&mut self, chunk: &[u8]) -> io::Result<()> {
        match self {
            Self::Plain(bounded) => bounded.write_all(chunk),
            Self::Gzip(decoder) => decoder.write_all(chunk),
        }
    }

    fn bounded(&self) -> &Bounded<G> {
        match self {
            Self::Plain(bounded) => bounded,
            Self::Gzip(decoder) => decoder.get_ref(),
        }
    }

    fn len(&self) -> usize {
        self.bounded().bytes.len()
    }

    /// Returns the reason of an error of the sink.
    fn refusal(&self, error: &io::Error, limit: usize) -> Unread {
        match self.bounded().refused {
            Some(refused) => Unread::OverBudget(refused),
            None => inflation(error, limit),
        }
    }

    fn finish(mut self, limit: usize) -> Result<Vec<u8>, Unread> {
        if let Self::Gzip(decoder) = &mut self {
            decoder.try_finish().map_err(|error| self.refusal(&error, limit))?;
        }
        match self {
            Self::Plain(bounded) => Ok(bounded.bytes),
            Self::Gzip(decoder) => {
                decoder.finish().map(|bounded| bounded.bytes).map_err(|error| inflation(&error, limit))
            }
        }
    }
}

/// A vector with a maximum size, which reserves memory before it grows.
struct Bounded<G> {
    bytes: Vec<u8>,
    limit: usize,
    grow_to: G,
    /// Memory that was refused.
    refused: Option<OverBudget>,
}

impl<G: Fn(usize) -> Result<(), OverBudget>> Write for Bounded<G> {
    fn write(&mut self, chunk: &[u8]) -> io::Result<usize> {
        let length = self.bytes.len().saturating_add(chunk.len());
        if length > self.limit {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        if let Err(refused) = (self.grow_to)(length) {
            self.refused = Some(refused);
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        self.bytes.extend_from_slice(chunk);
        Ok(chunk.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use flate2::{Compression, write::GzEncoder};

    use super::*;

    /// All of the content is in one chunk, which inflates to a thousand times its size.
    #[test]
    fn memory_is_reserved_before_decoder_writes() {
        const ROOM: usize = 1 << 20;
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(&vec![0; 64 * ROOM]).unwrap();
        let chunk = encoder.finish().unwrap();
        let largest = Cell::new(0);
        let grow_to = |bytes: usize| {
            largest.set(bytes);
            if bytes > ROOM { Err(OverBudget { needed: bytes }) } else { Ok(()) }
        };
        let bounded = Bounded { bytes: Vec::new(), limit: 64 * ROOM, grow_to, refused: None };
        let mut sink = Sink::Gzip(Box::new(GzDecoder::new(bounded)));
        let error = sink.write(&chunk).unwrap_err();
        assert!(matches!(sink.refusal(&error, 64 * ROOM), Unread::OverBudget(_)));
        assert!(sink.len() <= ROOM && largest.get() < 2 * ROOM, "{} of {}", sink.len(), largest.get());
    }
}
