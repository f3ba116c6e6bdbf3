//! Clients that mean no good, many at once.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

/// Connections that have sent the same bytes, which are no whole request.
pub(crate) struct Flood(Vec<TcpStream>);

impl Flood {
    /// Opens so many, and has each of them send as much of this as the server takes.
    pub(crate) fn of(address: SocketAddr, count: usize, bytes: &[u8]) -> Flood {
        let mut flood = Flood(Vec::new());
        for _ in 0..count {
            flood.add(address, bytes);
        }
        flood
    }

    /// Opens one more.
    pub(crate) fn add(&mut self, address: SocketAddr, bytes: &[u8]) {
        // Whoever is closed while it connects or sends has been refused, as it may be.
        let Ok(mut stream) = TcpStream::connect(address) else { return };
        stream.set_nonblocking(true).unwrap();
        let mut rest = bytes;
        while let Ok(sent @ 1..) = stream.write(rest) {
            rest = &rest[sent..];
        }
        self.0.push(stream);
    }

    /// Number of those that the server has not closed.
    pub(crate) fn open(&mut self) -> usize {
        let is_open = |stream: &mut TcpStream| {
            let mut byte = [0; 512];
            matches!(stream.read(&mut byte), Err(error) if error.kind() == ErrorKind::WouldBlock)
        };
        self.0.iter_mut().map(is_open).filter(|open| *open).count()
    }
}
