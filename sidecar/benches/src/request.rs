//! Requests as Flagsmith's and OpenFeature's clients send them, byte for byte.

use crate::profile::CLIENT_KEY;

/// Traits of every request: eight, of every type, one of them a version. The conditions compare all of them.
pub const TRAITS: [(&str, &str); 8] = [
    ("plan", r#""scale-up""#),
    ("country", r#""DE""#),
    ("age", "34"),
    ("spend", "1249.5"),
    ("beta", "true"),
    ("app_version", r#""3.14.2""#),
    ("email", r#""jane.doe+flags@customers.example""#),
    ("account", "48213"),
];

/// Form of a request for an identity's flags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asking {
    /// A body with traits, in Python's JSON format.
    Python,
    /// A body with traits in compact JSON, the format of most serializers, and with Node's headers.
    Node,
    /// A query without traits.
    Query,
}

impl Asking {
    /// Returns the bytes of the request.
    #[must_use]
    pub fn request(self, identifier: &str) -> Vec<u8> {
        const PATH: &str = "/api/v1/identities/";
        const MORE: &str = "accept-language: *\r\nsec-fetch-mode: cors\r\n";
        match self {
            Asking::Python => to("POST", PATH, "", &identity_body(identifier)),
            Asking::Node => to("POST", PATH, MORE, &compact_identity_body(identifier)),
            Asking::Query => to("GET", &format!("{PATH}?identifier={}", identifier.replace('@', "%40")), "", ""),
        }
    }
}

/// Writes a body of `identities/` in Python's JSON format.
#[must_use]
pub fn identity_body(identifier: &str) -> String {
    let traits: Vec<String> =
        TRAITS.iter().map(|(key, value)| format!(r#"{{"trait_key": "{key}", "trait_value": {value}}}"#)).collect();
    format!(r#"{{"identifier": "{identifier}", "traits": [{}]}}"#, traits.join(", "))
}

/// Writes a body of `identities/` in compact JSON.
#[must_use]
pub fn compact_identity_body(identifier: &str) -> String {
    let traits: Vec<String> =
        TRAITS.iter().map(|(key, value)| format!(r#"{{"trait_key":"{key}","trait_value":{value}}}"#)).collect();
    format!(r#"{{"identifier":"{identifier}","traits":[{}]}}"#, traits.join(","))
}

/// Writes a body for both of OFREP's endpoints.
#[must_use]
pub fn context_body(identifier: &str) -> String {
    let traits: Vec<String> = TRAITS.iter().map(|(key, value)| format!(r#""{key}":{value}"#)).collect();
    format!(r#"{{"context":{{"targetingKey":"{identifier}",{}}}}}"#, traits.join(","))
}

/// Returns the bytes of a request to `path`, with the headers that clients send.
#[must_use]
pub fn to(method: &str, path: &str, more: &str, body: &str) -> Vec<u8> {
    let content = if body.is_empty() {
        String::new()
    } else {
        format!("Content-Type: application/json\r\nContent-Length: {}\r\n", body.len())
    };
    format!(
        "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:4777\r\nUser-Agent: flagsmith-python-sdk/6.3.0\r\n\
         Accept-Encoding: gzip, deflate\r\nAccept: */*\r\nConnection: keep-alive\r\n\
         X-Environment-Key: {CLIENT_KEY}\r\n{more}{content}\r\n{body}"
    )
    .into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_of_both_serializers_differ_in_spaces_only() -> serde_json::Result<()> {
        let (python, compact) = (identity_body("somebody"), compact_identity_body("somebody"));
        assert!(python.contains(' ') && !compact.contains(' '));
        assert_eq!(
            serde_json::from_str::<serde_json::Value>(&python)?,
            serde_json::from_str::<serde_json::Value>(&compact)?
        );
        Ok(())
    }
}
