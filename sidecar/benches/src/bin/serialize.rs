//! Flagsmith's published way to serve the environment's document: it is parsed once, and serialized for each request.
//! `serialize ADDRESS DOCUMENT`.

use std::sync::Arc;

use anyhow::Context as _;
use http::Response;
use http::header::{CONTENT_TYPE, HeaderValue};
use remora_bench::bare::{Whole, serve};
use serde_json::Value;

fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let mut next = || arguments.next().context("serialize ADDRESS DOCUMENT");
    let (address, document) = (next()?, next()?);
    let document: Arc<Value> = Arc::new(serde_json::from_slice(&std::fs::read(document)?)?);
    serve(&address, move || {
        // Serializing a parsed value cannot fail.
        let body = serde_json::to_vec(&*document).unwrap_or_default();
        let mut response = Response::new(Whole(body.into()));
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        response
    })
}
