//! Browsers in development: which pages may ask, when somebody said so.
//!
//! Off by default, because a page of any origin that a developer opens could otherwise read the flags on localhost.

use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS,
    ACCESS_CONTROL_REQUEST_METHOD, ORIGIN, VARY,
};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method};

/// The origins whose pages may ask.
#[derive(Debug, Default)]
pub(crate) struct Cors {
    origins: Vec<String>,
}

/// What a request of a browser may do.
#[derive(Debug)]
pub(crate) struct Grant {
    origin: HeaderValue,
    /// The request only asks whether another one may be sent, with these headers.
    preflight: Option<Option<HeaderValue>>,
}

impl Cors {
    /// Of these origins; `*` is any.
    pub(crate) fn new(origins: &[String]) -> Cors {
        Cors { origins: origins.to_vec() }
    }

    /// What a request may do; nothing where it is no browser's, or a page's that is not allowed.
    pub(crate) fn grant(&self, parts: &Parts) -> Option<Grant> {
        if self.origins.is_empty() {
            return None;
        }
        let origin = parts.headers.get(ORIGIN)?;
        if !self.origins.iter().any(|allowed| allowed == "*" || allowed.as_bytes() == origin.as_bytes()) {
            return None;
        }
        let preflight = (parts.method == Method::OPTIONS && parts.headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD))
            .then(|| parts.headers.get(ACCESS_CONTROL_REQUEST_HEADERS).cloned());
        Some(Grant { origin: origin.clone(), preflight })
    }
}

impl Grant {
    /// Whether the browser only asks whether it may ask.
    pub(crate) fn is_preflight(&self) -> bool {
        self.preflight.is_some()
    }

    /// Tells the browser.
    pub(crate) fn write(self, headers: &mut HeaderMap) {
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, self.origin);
        headers.append(VARY, HeaderValue::from_static("Origin"));
        match self.preflight {
            None => {
                headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static("ETag, X-Remora-Assignment"));
            }
            Some(asked) => {
                headers.insert(ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET, HEAD, POST"));
                headers.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("600"));
                if let Some(asked) = asked {
                    headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, asked);
                }
            }
        }
    }
}
