//! Parses the path and the query of a request.

use std::fmt::Write as _;

/// Endpoint of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Route<'a> {
    /// Flagsmith: the environment's flags.
    Flags,
    /// Flagsmith: an identity's flags.
    Identities,
    /// Assignment key of an identity's flags.
    Assignment,
    /// Flagsmith: the environment's document, for SDKs that evaluate locally.
    Document,
    /// Flagsmith: counts of the flags that an application used.
    Analytics,
    /// Flagsmith: events of the environment with this client key, which is still percent-encoded.
    Realtime(&'a str),
    /// The edge proxy's health.
    Health,
    /// The edge proxy's liveness.
    Liveness,
    /// OFREP: one flag. Its key is still percent-encoded.
    OfrepFlag(&'a str),
    /// OFREP: all flags.
    OfrepFlags,
    /// OFREP: events of the environment.
    OfrepStream,
    /// No endpoint of the sidecar.
    Unknown,
}

impl<'a> Route<'a> {
    /// Returns the route of a path. A slash at its end makes no difference.
    pub(crate) fn of(path: &'a str) -> Route<'a> {
        match path.strip_suffix('/').unwrap_or(path) {
            "/api/v1/flags" => Route::Flags,
            "/api/v1/identities" => Route::Identities,
            "/api/v1/identities/assignment" => Route::Assignment,
            "/api/v1/environment-document" => Route::Document,
            "/api/v1/analytics/flags" => Route::Analytics,
            "/health" | "/proxy/health" | "/proxy/health/readiness" => Route::Health,
            "/proxy/health/liveness" => Route::Liveness,
            "/ofrep/v1/evaluate/flags" => Route::OfrepFlags,
            "/ofrep/v1/stream" => Route::OfrepStream,
            path => {
                // Most providers write the flag's key as it is, so its slashes are slashes of the path.
                if let Some(key) = path.strip_prefix("/ofrep/v1/evaluate/flags/") {
                    return Route::OfrepFlag(key);
                }
                let realtime = || path.strip_prefix("/sse/environments/")?.strip_suffix("/stream");
                realtime().filter(|key| !key.contains('/')).map_or(Route::Unknown, Route::Realtime)
            }
        }
    }

    /// True if the route reads the body of a `POST`.
    pub(crate) fn reads_body(self) -> bool {
        matches!(
            self,
            Route::Identities | Route::Assignment | Route::Analytics | Route::OfrepFlag(_) | Route::OfrepFlags
        )
    }

    /// Methods of the route, as the `Allow` header lists them.
    pub(crate) fn allowed(self) -> &'static str {
        match self {
            Route::Flags | Route::Document | Route::Health | Route::Liveness => "GET, HEAD",
            Route::Identities | Route::Assignment => "GET, HEAD, POST",
            Route::Analytics | Route::OfrepFlag(_) | Route::OfrepFlags => "POST",
            Route::Realtime(_) | Route::OfrepStream => "GET",
            Route::Unknown => "",
        }
    }
}

/// Returns the decoded value of a query parameter. If the name is repeated, the last value counts.
pub(crate) fn parameter<'s>(query: Option<&'s str>, name: &str, scratch: &'s mut String) -> Option<&'s str> {
    let value = query?.rsplit('&').find_map(|pair| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        (key == name || decode(key, true, &mut String::new()) == name).then_some(value)
    })?;
    Some(decode(value, true, scratch))
}

/// Decodes percent-encoding. `scratch` is only written if there is any. Bytes that are not UTF-8 after decoding are
/// replaced, as in Python.
pub(crate) fn decode<'s>(text: &'s str, plus_is_space: bool, scratch: &'s mut String) -> &'s str {
    let encoded = |byte| byte == b'%' || (plus_is_space && byte == b'+');
    if !text.bytes().any(encoded) {
        return text;
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        let digit = |at: usize| char::from(*after.get(at)?).to_digit(16);
        match (byte, digit(0), digit(1)) {
            (b'%', Some(high), Some(low)) => {
                bytes.extend(u8::try_from(high << 4 | low));
                rest = after.get(2..).unwrap_or_default();
            }
            (b'+', ..) if plus_is_space => bytes.push(b' '),
            _ => bytes.push(byte),
        }
    }
    scratch.clear();
    scratch.push_str(&String::from_utf8_lossy(&bytes));
    scratch
}

/// Returns a name with percent escapes for all bytes but letters, digits and `-._~`.
pub(crate) fn encode(name: &str) -> String {
    name.bytes().fold(String::with_capacity(name.len()), |mut text, byte| {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            text.push(char::from(byte));
        } else {
            // Writing to a string cannot fail.
            let _ = write!(text, "%{byte:02X}");
        }
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_has_its_route() {
        for (path, route) in [
            ("/api/v1/flags/", Route::Flags),
            ("/api/v1/flags", Route::Flags),
            ("/api/v1/identities/", Route::Identities),
            ("/api/v1/identities/assignment/", Route::Assignment),
            ("/api/v1/environment-document/", Route::Document),
            ("/api/v1/environment-document", Route::Document),
            ("/api/v1/analytics/flags/", Route::Analytics),
            ("/health", Route::Health),
            ("/proxy/health/", Route::Health),
            ("/proxy/health/readiness", Route::Health),
            ("/proxy/health/liveness", Route::Liveness),
            ("/ofrep/v1/evaluate/flags", Route::OfrepFlags),
            ("/ofrep/v1/evaluate/flags/", Route::OfrepFlags),
            ("/ofrep/v1/evaluate/flags/a%2Fb", Route::OfrepFlag("a%2Fb")),
            ("/ofrep/v1/evaluate/flags/a/b", Route::OfrepFlag("a/b")),
            ("/ofrep/v1/evaluate/flags/a/b/", Route::OfrepFlag("a/b")),
            ("/ofrep/v1/evaluate/flagsy/a", Route::Unknown),
            ("/ofrep/v1/stream", Route::OfrepStream),
            ("/sse/environments/key/stream", Route::Realtime("key")),
            ("/sse/environments/a/b/stream", Route::Unknown),
            ("/sse/environments/stream", Route::Unknown),
            ("/api/v1/flags//", Route::Unknown),
            ("/api/v1/flagsy", Route::Unknown),
            ("/", Route::Unknown),
            ("", Route::Unknown),
        ] {
            assert_eq!(Route::of(path), route, "{path}");
        }
    }

    #[test]
    fn query_parameter_is_decoded_and_the_last_one_counts() {
        let get = |query: &str| parameter(Some(query), "feature", &mut String::new()).map(str::to_owned);
        assert_eq!(get("feature=plain"), Some("plain".to_owned()));
        assert_eq!(get("x=1&feature=a%20b+c%C3%B6%2"), Some("a b cö%2".to_owned()));
        assert_eq!(get("feature=one&feature=two"), Some("two".to_owned()));
        assert_eq!(get("feature"), Some(String::new()));
        assert_eq!(get("feature=one&f%65ature=two&x+y=three"), Some("two".to_owned()));
        assert_eq!(get("features=x&xfeature=y"), None);
        assert_eq!(get("feature=%ff"), Some("\u{fffd}".to_owned()));
        assert_eq!(parameter(None, "feature", &mut String::new()), None);
        assert_eq!(decode("a+b%2B", false, &mut String::new()), "a+b+");
        assert_eq!(encode("a-b_c.d~ ,\u{f6}\n"), "a-b_c.d~%20%2C%C3%B6%0A");
    }
}
