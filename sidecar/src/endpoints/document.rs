//! The environment's document: what the client has already, and the encoding that it accepts.

use std::sync::Arc;
use std::time::UNIX_EPOCH;

use http::header::{
    ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, ETAG, IF_MODIFIED_SINCE, IF_NONE_MATCH, LAST_MODIFIED,
    RETRY_AFTER, VARY,
};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, StatusCode};

use crate::clock::since_epoch;
use crate::environments::document::{Document, InflateSlots};
use crate::http::answer::{Answer, ContentType};
use crate::http::entity_tag::matches_tag;

/// Answers a request that is authorized to read the document.
pub(super) fn answer(document: &Arc<Document>, parts: &Parts, inflate_slots: &InflateSlots) -> Answer {
    let stored = accepts_gzip(&parts.headers);
    let tag = if stored { document.stored_tag() } else { document.inflated_tag() };
    let answer = if is_known(document, &parts.headers) {
        Answer::empty(StatusCode::NOT_MODIFIED)
    } else if stored {
        Answer::new(StatusCode::OK, ContentType::Json, document.stored())
            .with(CONTENT_ENCODING, HeaderValue::from_static("gzip"))
    } else {
        let Some(body) = document.inflated(inflate_slots) else {
            let busy = "{\"detail\":\"too many documents are being sent inflated: accept gzip\"}";
            return Answer::constant(StatusCode::SERVICE_UNAVAILABLE, busy)
                .with(RETRY_AFTER, HeaderValue::from_static("1"));
        };
        Answer::new(StatusCode::OK, ContentType::Json, body)
    };
    let date = httpdate::fmt_http_date(UNIX_EPOCH + document.modified());
    let mut answer = answer
        .with(VARY, HeaderValue::from_static("Accept-Encoding"))
        .with(CACHE_CONTROL, HeaderValue::from_static("private, no-cache"));
    for (name, value) in [(ETAG, HeaderValue::try_from(tag)), (LAST_MODIFIED, HeaderValue::try_from(date))] {
        if let Ok(value) = value {
            answer = answer.with(name, value);
        }
    }
    answer
}

/// True if the client has this content already, by its entity tag or, without one, by its date.
fn is_known(document: &Document, headers: &HeaderMap) -> bool {
    if headers.contains_key(IF_NONE_MATCH) {
        return headers.get_all(IF_NONE_MATCH).iter().map(HeaderValue::as_bytes).any(|header| {
            let names = |tag: &str| matches_tag(header, tag);
            // The asterisk stands for any content (RFC 9110, 13.1.2).
            header == b"*" || names(document.stored_tag()) || names(document.inflated_tag())
        });
    }
    let since = headers.get(IF_MODIFIED_SINCE).and_then(|since| httpdate::parse_http_date(since.to_str().ok()?).ok());
    // A later date is not enough: if the clock was set back before this process started, an earlier process may have
    // stated it for another content.
    since.is_some_and(|since| since_epoch(since) == document.modified())
}

/// True if the client accepts gzip.
fn accepts_gzip(headers: &HeaderMap) -> bool {
    let mut any = false;
    for header in headers.get_all(ACCEPT_ENCODING) {
        for entry in header.to_str().unwrap_or_default().split(',') {
            let (coding, weight) = entry.split_once(';').unwrap_or((entry, ""));
            let weight = weight.trim().strip_prefix("q=").map_or(Ok(1.0), str::parse::<f32>);
            let wanted = weight.is_ok_and(|weight| weight > 0.0);
            match coding.trim() {
                // An entry for `gzip` takes precedence over the wildcard.
                coding if coding.eq_ignore_ascii_case("gzip") => return wanted,
                "*" => any |= wanted,
                _ => {}
            }
        }
    }
    any
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gzip_is_accepted_by_weight_and_wildcard() {
        for (accept, gzip) in [
            (None, false),
            (Some("gzip"), true),
            (Some("gzip, deflate"), true),
            (Some("br;q=1.0, GZIP;q=0.5"), true),
            (Some("*"), true),
            (Some("identity"), false),
            (Some("gzip;q=0"), false),
            (Some("gzip; q=0.000, *"), false),
            (Some("*;q=0"), false),
            (Some("gzipped"), false),
            (Some("gzip;q=x"), false),
        ] {
            let mut headers = HeaderMap::new();
            headers.extend(accept.map(|accept| (ACCEPT_ENCODING, HeaderValue::from_static(accept))));
            assert_eq!(accepts_gzip(&headers), gzip, "{accept:?}");
        }
    }
}
