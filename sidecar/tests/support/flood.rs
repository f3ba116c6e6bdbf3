//! Many hostile clients at once.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

/// Size in bytes of the kernel's send buffer of each connection, so that the test's own memory is bounded, too.
const SEND_BUFFER: usize = 64 * 1024;

/// Connections that all send the same bytes, and never read.
pub(crate) struct Flood<'a> {
    bytes: &'a [u8],
    /// Streams with the number of bytes that each has sent.
    streams: Vec<(TcpStream, usize)>,
}

impl<'a> Flood<'a> {
    /// Opens `count` connections, each of which sends as much as the server accepts at once.
    pub(crate) fn of(address: SocketAddr, count: usize, bytes: &'a [u8]) -> Flood<'a> {
        let mut flood = Flood { bytes, streams: Vec::new() };
        for _ in 0..count {
            flood.add(address);
        }
        flood
    }

    /// Opens another connection.
    pub(crate) fn add(&mut self, address: SocketAddr) {
        // The server may refuse a connection by closing it while it connects or sends.
        let Ok(stream) = TcpStream::connect(address) else { return };
        stream.set_nonblocking(true).unwrap();
        socket2::SockRef::from(&stream).set_send_buffer_size(SEND_BUFFER).unwrap();
        self.streams.push((stream, 0));
        let last = self.streams.len() - 1;
        self.push_from(last);
    }

    /// Continues to send on all connections, as much as the server accepts now.
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

    /// Number of connections that the server has not closed. Reads and discards their answers.
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
