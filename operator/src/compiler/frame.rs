//! Encoding of the messages on the pipes between parent and child.
//!
//! ```text
//! stdin:   length (u32, little-endian)  Head as JSON     page  page  …
//! stdout:  'p' length (u32)  a place, as text            any number of times
//!          'a' length (u32)  Answer as JSON              once
//!          file  file  …                                 in the order of the answer
//! ```

use std::io::{self, Read, Write};

use remora_compile::File;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::{
    Request,
    message::{ChildAnswer, Head},
};
use remora_snapshot::files;

/// Largest length of a reported place in bytes. Longer ones are cut.
pub(super) const PLACE_MAX: usize = 1 << 10;
/// Largest size of an answer without its files, in bytes.
const ANSWER_MAX: usize = 1 << 20;
/// Largest size of a request's head in bytes.
const HEAD_MAX: usize = 4 << 20;

const PLACE: u8 = b'p';
const ANSWER: u8 = b'a';

/// Reason why the output of a child is not an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BadAnswer {
    /// The output ended before the answer was complete: the child was killed, or ended.
    Incomplete,
    /// The output does not follow the encoding.
    Malformed(&'static str),
}

/// Sends a request. Frees each page once it is written.
pub(super) async fn send(mut to: impl AsyncWrite + Unpin, request: Request) -> io::Result<()> {
    let Request { task, pages } = request;
    let head = serde_json::to_vec(&Head { task, pages: pages.iter().map(Vec::len).collect() })?;
    to.write_all(&length(head.len())?).await?;
    to.write_all(&head).await?;
    for page in pages {
        to.write_all(&page).await?;
    }
    to.shutdown().await
}

/// Reads the head of a request.
pub(super) fn head(from: &mut impl Read) -> io::Result<Head> {
    let mut length = [0; 4];
    from.read_exact(&mut length)?;
    let bytes = read_page(from, (u32::from_le_bytes(length) as usize).min(HEAD_MAX))?;
    Ok(serde_json::from_slice(&bytes)?)
}

/// Reads a page of `length` bytes.
pub(super) fn read_page(from: &mut impl Read, length: usize) -> io::Result<Vec<u8>> {
    let mut page = vec![0; length];
    from.read_exact(&mut page)?;
    Ok(page)
}

/// Reports the place in the document that the child has reached to the parent.
pub(super) fn write_progress(to: &mut impl Write, place: &str) -> io::Result<()> {
    let end = (0..=PLACE_MAX.min(place.len())).rev().find(|end| place.is_char_boundary(*end));
    write(to, PLACE, place.get(..end.unwrap_or_default()).unwrap_or_default().as_bytes())
}

/// Writes the answer and its files.
pub(super) fn answer(to: &mut impl Write, answer: &ChildAnswer, files: &[File]) -> io::Result<()> {
    write(to, ANSWER, &serde_json::to_vec(answer)?)?;
    for file in files {
        to.write_all(&file.bytes)?;
    }
    to.flush()
}

fn write(to: &mut impl Write, tag: u8, bytes: &[u8]) -> io::Result<()> {
    to.write_all(&[tag])?;
    to.write_all(&length(bytes.len())?)?;
    to.write_all(bytes)?;
    to.flush()
}

fn length(bytes: usize) -> io::Result<[u8; 4]> {
    u32::try_from(bytes).map(u32::to_le_bytes).map_err(|_| io::ErrorKind::FileTooLarge.into())
}

/// Reads the output of a child to its end, and calls `at` with each reported place.
pub(super) async fn receive(
    mut from: impl AsyncRead + Unpin,
    mut at: impl FnMut(&[u8]),
) -> Result<(ChildAnswer, Vec<File>), BadAnswer> {
    let answer = loop {
        let tag = from.read_u8().await.map_err(incomplete)?;
        let length = from.read_u32_le().await.map_err(incomplete)? as usize;
        let limit = match tag {
            PLACE => PLACE_MAX,
            ANSWER => ANSWER_MAX,
            _ => return Err(BadAnswer::Malformed("wrote a message of an unknown kind")),
        };
        if length > limit {
            return Err(BadAnswer::Malformed("wrote a message longer than allowed"));
        }
        let bytes = read(&mut from, length).await?;
        if tag == PLACE {
            at(&bytes);
        } else {
            break serde_json::from_slice(&bytes)
                .map_err(|_| BadAnswer::Malformed("wrote an answer that is not JSON"))?;
        }
    };
    let mut read_files = Vec::new();
    if let ChildAnswer::Compiled(contents) = &answer {
        let known: Vec<String> = files::all(files::OVERRIDES_SLOTS, 0).collect();
        for (number, (name, length)) in contents.files.iter().enumerate() {
            let is_new = !contents.files.iter().take(number).any(|(before, _)| before == name);
            if !known.contains(name) || !is_new {
                return Err(BadAnswer::Malformed("named a file that no snapshot has"));
            }
            // The publisher cuts the core into parts.
            let most = if name == files::CORE { files::MAX_CORE_BYTES } else { files::MAX_FILE_BYTES };
            if *length > most {
                return Err(BadAnswer::Malformed("named a file larger than allowed"));
            }
            read_files.push(File { name: name.clone(), bytes: read(&mut from, *length).await? });
        }
    }
    match from.read_u8().await {
        Ok(_) => Err(BadAnswer::Malformed("wrote more than its answer")),
        Err(_) => Ok((answer, read_files)),
    }
}

async fn read(from: &mut (impl AsyncRead + Unpin), length: usize) -> Result<Vec<u8>, BadAnswer> {
    let mut bytes = vec![0; length];
    from.read_exact(&mut bytes).await.map_err(incomplete)?;
    Ok(bytes)
}

fn incomplete(_: io::Error) -> BadAnswer {
    BadAnswer::Incomplete
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compiler::message::CompiledHeader;

    fn contents(files: &[(&str, usize)]) -> ChildAnswer {
        let files = files.iter().map(|(name, length)| ((*name).to_owned(), *length)).collect();
        let contents = serde_json::json!({
            "revision": "r", "summary": {"features": 0, "segments": 0, "identity_overrides": 0, "bytes": 0},
            "findings": [], "finding_count": 0, "files": [],
            "about": {"client_key": "", "updated_at": null, "features": 0, "segments": 0, "overrides": 0},
        });
        ChildAnswer::Compiled(Box::new(CompiledHeader { files, ..serde_json::from_value(contents).unwrap() }))
    }

    async fn received(bytes: &[u8]) -> Result<(Vec<File>, Vec<String>), BadAnswer> {
        let mut places = Vec::new();
        let (_, files) = receive(bytes, |place| places.push(String::from_utf8(place.to_vec()).unwrap())).await?;
        Ok((files, places))
    }

    #[tokio::test]
    async fn answer_with_places_and_files_is_received_as_written() {
        let core = File { name: files::CORE.to_owned(), bytes: vec![7; 3] };
        let mut bytes = Vec::new();
        write_progress(&mut bytes, "segment \"a\" (1)").unwrap();
        write_progress(&mut bytes, &"é".repeat(PLACE_MAX)).unwrap();
        answer(&mut bytes, &contents(&[(files::CORE, 3)]), std::slice::from_ref(&core)).unwrap();
        let (files, places) = received(&bytes).await.unwrap();
        assert_eq!(files, [core]);
        assert_eq!(places, ["segment \"a\" (1)".to_owned(), "é".repeat(PLACE_MAX / 2)]);
        for end in 0..bytes.len() {
            assert_eq!(received(&bytes[..end]).await, Err(BadAnswer::Incomplete), "cut at {end}");
        }
        bytes.push(0);
        assert!(matches!(received(&bytes).await, Err(BadAnswer::Malformed(_))), "one byte too many");
    }

    #[tokio::test]
    async fn answer_beyond_bounds_is_refused_before_it_is_read() {
        let frame = |tag: u8, length: usize| [&[tag][..], &u32::try_from(length).unwrap().to_le_bytes()].concat();
        for bytes in [frame(b'x', 0), frame(PLACE, PLACE_MAX + 1), frame(ANSWER, ANSWER_MAX + 1)] {
            assert!(matches!(received(&bytes).await, Err(BadAnswer::Malformed(_))), "{bytes:?}");
        }
        let large: &[_] = &[("overrides-00", files::MAX_FILE_BYTES + 1)];
        let largest: &[_] = &[(files::CORE, files::MAX_CORE_BYTES + 1)];
        let twice: &[_] = &[(files::CORE, 0), (files::CORE, 0)];
        for named in [large, largest, twice, &[("../core", 0)], &[("..data", 0)]] {
            let mut bytes = Vec::new();
            answer(&mut bytes, &contents(named), &[]).unwrap();
            assert!(matches!(received(&bytes).await, Err(BadAnswer::Malformed(_))), "{named:?}");
        }
    }

    #[tokio::test]
    async fn request_with_pages_is_read_as_sent() {
        let task = super::super::Task { environment: "shop".to_owned(), ..Default::default() };
        let mut bytes = Vec::new();
        send(&mut bytes, Request { task: task.clone(), pages: vec![vec![1; 5], vec![2; 3]] }).await.unwrap();
        let mut bytes = bytes.as_slice();
        let read = head(&mut bytes).unwrap();
        assert_eq!((read.task, read.pages.as_slice()), (task, &[5, 3][..]));
        assert_eq!(read_page(&mut bytes, 5).unwrap(), [1; 5]);
        assert_eq!(read_page(&mut bytes, 3).unwrap(), [2; 3]);
        assert!(read_page(&mut bytes, 1).is_err());
    }
}
