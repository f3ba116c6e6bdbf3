//! Clients that mean no good, many at once.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

/// Bytes that the kernel keeps for each of them: the test's own memory is to be bounded, too.
const SEND_BUFFER: usize = 64 * 1024;

/// Connections that all send the same bytes, and never read.
pub(crate) struct Flood<'a> {
    bytes: &'a [u8],
    /// With how much of the bytes has been sent.
    streams: Vec<(TcpStream, usize)>,
}

impl<'a> Flood<'a> {
    /// Opens so many, and has each of them send as much as is taken at once.
    pub(crate) fn of(address: SocketAddr, count: usize, bytes: &'a [u8]) -> Flood<'a> {
        let mut flood = Flood { bytes, streams: Vec::new() };
        for _ in 0..count {
            flood.add(address);
        }
        flood
    }

    /// Opens one more.
    pub(crate) fn add(&mut self, address: SocketAddr) {
        // Whoever is closed while it connects or sends has been refused, as it may be.
        let Ok(stream) = TcpStream::connect(address) else { return };
        stream.set_nonblocking(true).unwrap();
        socket2::SockRef::from(&stream).set_send_buffer_size(SEND_BUFFER).unwrap();
        self.streams.push((stream, 0));
        let last = self.streams.len() - 1;
        self.push_from(last);
    }

    /// Has all of them send what is taken by now.
    pub(crate) fn push(&mut self) {
        self.push_from(0);
    }

    fn push_from(&mut self, first: usize) {
        for (stream, sent) in &mut self.streams[first..] {
            while let Ok(count @ 1..) = stream.write(&self.bytes[*sent..]) {
                *sent += count;
            }
        }
    }

    /// Number of those that the server has not closed. Their answers are read on the way.
    pub(crate) fn open(&mut self) -> usize {
        let is_open = |(stream, _): &mut (TcpStream, usize)| {
            let mut bytes = [0; 4096];
            loop {
                match stream.read(&mut bytes) {
                    Ok(1..) => {}
                    Ok(0) => return false,
                    Err(error) => return error.kind() == ErrorKind::WouldBlock,
                }
            }
        };
        self.streams.iter_mut().map(is_open).filter(|open| *open).count()
    }
}
