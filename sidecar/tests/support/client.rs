//! A simple HTTP client that gives tests access to every byte.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
    /// Body as bytes, because it may not be text.
    pub(crate) bytes: Vec<u8>,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

/// A connection that stays open.
pub(crate) struct Connection(BufReader<TcpStream>);

impl Connection {
    pub(crate) fn open(address: SocketAddr) -> Connection {
        Connection::over(TcpStream::connect(address).unwrap())
    }

    /// Creates a connection over a connected stream.
    pub(crate) fn over(stream: TcpStream) -> Connection {
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        stream.set_nodelay(true).unwrap();
        Connection(BufReader::new(stream))
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.0.get_mut().write_all(bytes)
    }

    /// Reads one answer. `None` if the connection was closed instead.
    pub(crate) fn receive(&mut self, head_only: bool) -> Option<Answer> {
        let mut line = String::new();
        if self.0.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let status = line.split(' ').nth(1)?.parse().ok()?;
        let mut headers = Vec::new();
        loop {
            let mut line = String::new();
            self.0.read_line(&mut line).ok()?;
            match line.trim_end().split_once(": ") {
                Some((name, value)) => headers.push((name.to_lowercase(), value.to_owned())),
                None => break,
            }
        }
        let mut answer = Answer { status, headers, body: String::new(), bytes: Vec::new() };
        let length = answer.header("content-length").map_or(0, |length| length.parse().unwrap());
        if !head_only && status != 304 {
            let mut body = vec![0; length];
            self.0.read_exact(&mut body).ok()?;
            answer.body = String::from_utf8_lossy(&body).into_owned();
            answer.bytes = body;
        }
        Some(answer)
    }

    pub(crate) fn request(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<&[u8]>,
    ) -> Option<Answer> {
        self.send(&request(method, path, headers, body)).ok()?;
        self.receive(method == "HEAD")
    }
}

/// Returns the bytes of a request.
pub(crate) fn request(method: &str, path: &str, headers: &[(&str, &str)], body: Option<&[u8]>) -> Vec<u8> {
    let mut request = format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\n");
    for (name, value) in headers {
        request += &format!("{name}: {value}\r\n");
    }
    if let Some(body) = body {
        request += &format!("content-length: {}\r\n", body.len());
    }
    let mut request = (request + "\r\n").into_bytes();
    request.extend_from_slice(body.unwrap_or_default());
    request
}

pub(crate) fn call(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: Option<&str>,
) -> Answer {
    let body = body.map(str::as_bytes);
    Connection::open(address).request(method, path, headers, body).expect("an answer")
}

pub(crate) fn get(address: SocketAddr, path: &str, headers: &[(&str, &str)]) -> Answer {
    call(address, "GET", path, headers, None)
}

pub(crate) fn post(address: SocketAddr, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
    call(address, "POST", path, headers, Some(body))
}
