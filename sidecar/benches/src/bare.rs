//! A bare server of the same HTTP library with the same settings as the sidecar's, as a reference for measurements.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

/// The sidecar's limits.
const MAX_HEAD: usize = 16 * 1024;
const MAX_BUFFER: usize = 16 * 1024;

/// A complete body in memory.
pub struct Whole(pub Bytes);

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

/// Serves until the process ends: reads each request, and answers it.
///
/// # Errors
/// The server cannot listen on this address.
pub fn serve(address: &str, answer: impl Fn() -> Response<Whole> + Clone + 'static) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, async {
        let listener = TcpListener::bind(address).await?;
        loop {
            let (stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            let answer = answer.clone();
            let service = service_fn(move |request: Request<Incoming>| {
                let answer = answer.clone();
                async move {
                    read(request).await;
                    Ok::<_, Infallible>(answer())
                }
            });
            let connection = http1::Builder::new()
                .header_read_timeout(None)
                .max_header_size(MAX_HEAD)
                .max_buf_size(MAX_BUFFER)
                .serve_connection(TokioIo::new(stream), service);
            // A client may close its connection at any time, so errors are ignored.
            tokio::task::spawn_local(async move { connection.await.unwrap_or_default() });
        }
    })
}

async fn read(request: Request<Incoming>) {
    let mut incoming = request.into_body();
    while let Some(Ok(_)) = std::future::poll_fn(|cx| {
        if incoming.is_end_stream() {
            return Poll::Ready(None);
        }
        Poll::Ready(ready!(Pin::new(&mut incoming).poll_frame(cx)))
    })
    .await
    {}
}
