//! Cross-origin requests of browsers, for development: off unless origins are configured.
//!
//! Without this restriction, a page of any origin that a developer opens could read the flags on localhost.

use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS,
    ACCESS_CONTROL_REQUEST_METHOD, ORIGIN, VARY,
};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method};

/// The origins whose pages may read answers.
#[derive(Debug, Default)]
pub(crate) struct Cors {
    origins: Vec<String>,
}

/// Permission for a browser's request.
#[derive(Debug)]
pub(crate) struct Grant {
    origin: HeaderValue,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    /// The browser asks what it may send.
    Preflight {
        /// Headers that it wants to send.
        headers: Option<HeaderValue>,
    },
    Request,
}

impl Cors {
    /// Allows these origins. `*` stands for any.
    pub(crate) fn new(origins: &[String]) -> Cors {
        Cors { origins: origins.to_vec() }
    }

    /// Returns the permission of a request. `None` if it is not a browser's, or its origin is not allowed.
    pub(crate) fn grant(&self, parts: &Parts) -> Option<Grant> {
        if self.origins.is_empty() {
            return None;
        }
        let origin = parts.headers.get(ORIGIN)?;
        if !self.origins.iter().any(|allowed| allowed == "*" || allowed.as_bytes() == origin.as_bytes()) {
            return None;
        }
        let is_preflight = parts.method == Method::OPTIONS && parts.headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD);
        let kind = if is_preflight {
            Kind::Preflight { headers: parts.headers.get(ACCESS_CONTROL_REQUEST_HEADERS).cloned() }
        } else {
            Kind::Request
        };
        Some(Grant { origin: origin.clone(), kind })
    }
}

impl Grant {
    /// True if the request is a preflight.
    pub(crate) fn is_preflight(&self) -> bool {
        matches!(self.kind, Kind::Preflight { .. })
    }

    /// Writes the headers of the permission.
    pub(crate) fn write(self, headers: &mut HeaderMap) {
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, self.origin);
        headers.append(VARY, HeaderValue::from_static("Origin"));
        match self.kind {
            Kind::Request => {
                headers.insert(
                    ACCESS_CONTROL_EXPOSE_HEADERS,
                    HeaderValue::from_static("ETag, X-Remora-Assignment, X-Remora-Overrides"),
                );
            }
            Kind::Preflight { headers: asked } => {
                headers.insert(ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET, HEAD, POST"));
                headers.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("600"));
                if let Some(asked) = asked {
                    headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, asked);
                }
            }
        }
    }
}
