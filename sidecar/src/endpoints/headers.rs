//! Headers of requests by which endpoints find a key, overrides, or the last event of a stream.

use http::HeaderName;
use http::request::Parts;

pub(super) static ENVIRONMENT_KEY: HeaderName = HeaderName::from_static("x-environment-key");
pub(super) static API_KEY: HeaderName = HeaderName::from_static("x-api-key");
pub(super) static OVERRIDE: HeaderName = HeaderName::from_static("x-remora-override");
pub(super) static LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// Returns the first header of this name. Requests have few headers: comparing each of them is faster than hashing the
/// name.
pub(super) fn header<'a>(parts: &'a Parts, name: &HeaderName) -> Option<&'a [u8]> {
    parts.headers.iter().find_map(|(found, value)| (found == name).then(|| value.as_bytes()))
}

/// Returns the first header of this name as text.
pub(super) fn text<'a>(parts: &'a Parts, name: &HeaderName) -> Option<&'a str> {
    std::str::from_utf8(header(parts, name)?).ok()
}

/// Returns the first header of this name as a key: its bytes, if they are UTF-8. A key is only compared.
pub(super) fn key<'a>(parts: &'a Parts, name: &HeaderName) -> Option<&'a [u8]> {
    let bytes = header(parts, name)?;
    (bytes.is_ascii() || std::str::from_utf8(bytes).is_ok()).then_some(bytes)
}
