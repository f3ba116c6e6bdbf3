//! The limit: a server of the same HTTP library with the same settings that reads the body and returns bytes from
//! memory. `limit ADDRESS STATUS BYTES TAG`; a tag that is not empty is sent as the `ETag`.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use anyhow::Context as _;
use bytes::Bytes;
use http::header::{CONTENT_TYPE, ETAG};
use http::{HeaderValue, Request, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

/// As large as the sidecar's.
const MAX_HEAD: usize = 16 * 1024;
const MAX_BUFFER: usize = 64 * 1024;

/// A body that is there.
struct Whole(Bytes);

impl Body for Whole {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let bytes = std::mem::take(&mut self.0);
        Poll::Ready((!bytes.is_empty()).then(|| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.0.len() as u64)
    }
}

fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let mut next = || arguments.next().context("limit ADDRESS STATUS BYTES TAG");
    let (address, status, bytes, tag) =
        (next()?, StatusCode::from_bytes(next()?.as_bytes())?, next()?.parse()?, next()?);
    let tag = if tag.is_empty() { None } else { Some(HeaderValue::try_from(tag)?) };
    let body = Bytes::from(vec![b'x'; bytes]);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind(&address).await?;
        loop {
            let (stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            let (body, tag) = (body.clone(), tag.clone());
            let service = service_fn(move |request: Request<Incoming>| {
                let (body, tag) = (body.clone(), tag.clone());
                async move { Ok::<_, Infallible>(answer(request, status, body, tag).await) }
            });
            let connection = http1::Builder::new()
                .header_read_timeout(None)
                .max_header_size(MAX_HEAD)
                .max_buf_size(MAX_BUFFER)
                .serve_connection(TokioIo::new(stream), service);
            // A client that hangs up is no fault.
            tokio::spawn(async move { connection.await.unwrap_or_default() });
        }
    })
}

async fn answer(
    request: Request<Incoming>,
    status: StatusCode,
    body: Bytes,
    tag: Option<HeaderValue>,
) -> Response<Whole> {
    let mut incoming = request.into_body();
    while let Some(Ok(_)) = std::future::poll_fn(|cx| {
        if incoming.is_end_stream() {
            return Poll::Ready(None);
        }
        Poll::Ready(ready!(Pin::new(&mut incoming).poll_frame(cx)))
    })
    .await
    {}
    let has_body = !body.is_empty();
    let mut response = Response::new(Whole(body));
    *response.status_mut() = status;
    if has_body {
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    }
    if let Some(tag) = tag {
        response.headers_mut().insert(ETAG, tag);
    }
    response
}
