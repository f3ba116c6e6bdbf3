//! The reference server: uses the same HTTP library with the same settings, reads the body, and returns bytes from
//! memory. `limit ADDRESS STATUS BYTES TAG`; a tag that is not empty is sent as the `ETag`.

use anyhow::Context as _;
use bytes::Bytes;
use http::header::{CONTENT_TYPE, ETAG};
use http::{HeaderValue, Response, StatusCode};
use remora_bench::bare::{Whole, serve};

fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let mut next = || arguments.next().context("limit ADDRESS STATUS BYTES TAG");
    let (address, status, bytes, tag) =
        (next()?, StatusCode::from_bytes(next()?.as_bytes())?, next()?.parse()?, next()?);
    let tag = if tag.is_empty() { None } else { Some(HeaderValue::try_from(tag)?) };
    let body = Bytes::from(vec![b'x'; bytes]);
    serve(&address, move || answer(status, body.clone(), tag.clone()))
}

fn answer(status: StatusCode, body: Bytes, tag: Option<HeaderValue>) -> Response<Whole> {
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
