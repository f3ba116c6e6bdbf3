//! Head and body of a request on the public side.

use tokio::io::{AsyncRead, AsyncReadExt as _};

const LONGEST: usize = 32 * 1024;
const LARGEST_BODY: usize = 1024 * 1024;

/// Method, target, headers and body of a request.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Head {
    pub(super) method: String,
    pub(super) path: String,
    pub(super) query: String,
    headers: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
}

impl Head {
    /// Returns the value of the header's first occurrence, if there is one.
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(own, _)| own.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    /// Returns the value of a query parameter, as written in the target.
    pub(super) fn parameter(&self, name: &str) -> Option<&str> {
        self.query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))
    }

    /// True if the client asks to close the connection after the answer.
    pub(super) fn closes(&self) -> bool {
        self.header("connection").is_some_and(|value| value.eq_ignore_ascii_case("close"))
    }

    /// Parses the bytes of a head. Its body is what follows the head, and may be incomplete.
    fn parse(bytes: &[u8]) -> anyhow::Result<Option<Self>> {
        let mut headers = [httparse::EMPTY_HEADER; 64];
        let mut request = httparse::Request::new(&mut headers);
        let httparse::Status::Complete(end) = request.parse(bytes)? else { return Ok(None) };
        let target = request.path.unwrap_or_default();
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let headers = request
            .headers
            .iter()
            .map(|header| (header.name.to_owned(), String::from_utf8_lossy(header.value).into_owned()));
        Ok(Some(Self {
            method: request.method.unwrap_or_default().to_owned(),
            path: path.to_owned(),
            query: query.to_owned(),
            headers: headers.collect(),
            body: bytes.get(end..).unwrap_or_default().to_vec(),
        }))
    }
}

/// Reads the next request of a connection. Returns `None` if the client closed it between two requests.
pub(super) async fn read(stream: &mut (impl AsyncRead + Unpin)) -> anyhow::Result<Option<Head>> {
    let mut bytes = Vec::new();
    loop {
        if let Some(mut head) = Head::parse(&bytes)? {
            let length = head.header("content-length").map_or(Ok(0), str::parse)?;
            anyhow::ensure!(length <= LARGEST_BODY, "a request's body is larger than {LARGEST_BODY} bytes");
            while head.body.len() < length {
                anyhow::ensure!(stream.read_buf(&mut head.body).await? > 0, "the connection closed inside a body");
            }
            head.body.truncate(length);
            return Ok(Some(head));
        }
        anyhow::ensure!(bytes.len() < LONGEST, "a request's head is longer than {LONGEST} bytes");
        if stream.read_buf(&mut bytes).await? == 0 {
            anyhow::ensure!(bytes.is_empty(), "the connection closed inside a request's head");
            return Ok(None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn head_is_read_in_pieces() {
        let (mut client, mut server) = tokio::io::duplex(7);
        let writer = tokio::spawn(async move {
            use tokio::io::AsyncWriteExt as _;
            client.write_all(b"GET /a/?page_id=x%3A1&b=2 HTTP/1.1\r\nhost: h\r\nX-Environment-Key: ser.k\r\nConnection: close\r\n\r\n").await.unwrap();
        });
        let head = read(&mut server).await.unwrap().unwrap();
        writer.await.unwrap();
        assert_eq!((head.method.as_str(), head.path.as_str()), ("GET", "/a/"));
        assert_eq!(head.parameter("page_id"), Some("x%3A1"));
        assert_eq!(head.parameter("page"), None);
        assert_eq!(head.header("x-environment-key"), Some("ser.k"));
        assert!(head.closes() && head.body.is_empty());
        assert!(read(&mut server).await.unwrap().is_none());
    }

    #[tokio::test]
    async fn body_is_read_in_pieces() {
        let (mut client, mut server) = tokio::io::duplex(7);
        let writer = tokio::spawn(async move {
            use tokio::io::AsyncWriteExt as _;
            client.write_all(b"POST / HTTP/1.1\r\ncontent-length: 10\r\n\r\n0123456789").await.unwrap();
        });
        let head = read(&mut server).await.unwrap().unwrap();
        writer.await.unwrap();
        assert_eq!(head.body, b"0123456789");
    }
}
