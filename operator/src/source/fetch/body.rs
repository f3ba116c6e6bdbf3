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
    let mut sink = Sink::new(&response, limit)?;
    let mut wire = 0_usize;
    loop {
        let (deadline, rate) = progress.deadline();
        let chunk = timeout_at(deadline, response.chunk()).await.map_err(|_| Unread::TooSlow(rate))?;
        let Some(chunk) = chunk.map_err(|error| broken(&error))? else { break };
        wire = wire.saturating_add(chunk.len());
        if wire > limit {
            return Err(too_large("the answer", limit));
        }
        // A chunk may inflate to a thousand times its size. The sink stops at the limit within the chunk.
        let before = sink.len();
        sink.write(&chunk).map_err(|error| inflation(&error, limit))?;
        progress.arrived(sink.len() - before, Instant::now());
        if wire > sink.len().saturating_mul(WIRE_RATIO).saturating_add(WIRE_SLACK) {
            return Err(Unread::Broken("the answer is much larger compressed than decompressed".to_owned()));
        }
        grow_to(sink.len()).map_err(Unread::OverBudget)?;
    }
    sink.finish().map_err(|error| inflation(&error, limit))
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

enum Sink {
    Plain(Bounded),
    /// Decodes one gzip member. Each further one would cost a new decoder.
    Gzip(Box<GzDecoder<Bounded>>),
}

impl Sink {
    fn new(response: &Response, limit: usize) -> Result<Self, Unread> {
        let bounded = Bounded { bytes: Vec::new(), limit };
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

    fn len(&self) -> usize {
        match self {
            Self::Plain(bounded) => bounded.bytes.len(),
            Self::Gzip(decoder) => decoder.get_ref().bytes.len(),
        }
    }

    fn finish(self) -> io::Result<Vec<u8>> {
        match self {
            Self::Plain(bounded) => Ok(bounded.bytes),
            Self::Gzip(decoder) => Ok(decoder.finish()?.bytes),
        }
    }
}

/// A vector with a maximum size.
struct Bounded {
    bytes: Vec<u8>,
    limit: usize,
}

impl Write for Bounded {
    fn write(&mut self, chunk: &[u8]) -> io::Result<usize> {
        if self.bytes.len().saturating_add(chunk.len()) > self.limit {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.bytes.extend_from_slice(chunk);
        Ok(chunk.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
