//! What is asked: requests as Flagsmith's and OpenFeature's clients send them, byte for byte.

use crate::profile::CLIENT_KEY;

/// The traits of every request: eight, of every type, one of them a version. Conditions ask for all of them.
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

/// How an identity's flags are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asking {
    /// With traits, in a body as Python writes JSON.
    Python,
    /// With traits, in a body without spaces, as all others write JSON; with headers as Node has them.
    Node,
    /// Without traits, in a query.
    Query,
}

impl Asking {
    /// The request.
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

/// The body of `identities/`.
#[must_use]
pub fn identity_body(identifier: &str) -> String {
    let traits: Vec<String> =
        TRAITS.iter().map(|(key, value)| format!(r#"{{"trait_key": "{key}", "trait_value": {value}}}"#)).collect();
    format!(r#"{{"identifier": "{identifier}", "traits": [{}]}}"#, traits.join(", "))
}

/// The same without spaces.
#[must_use]
pub fn compact_identity_body(identifier: &str) -> String {
    let traits: Vec<String> =
        TRAITS.iter().map(|(key, value)| format!(r#"{{"trait_key":"{key}","trait_value":{value}}}"#)).collect();
    format!(r#"{{"identifier":"{identifier}","traits":[{}]}}"#, traits.join(","))
}

/// The body of both of OFREP's endpoints.
#[must_use]
pub fn context_body(identifier: &str) -> String {
    let traits: Vec<String> = TRAITS.iter().map(|(key, value)| format!(r#""{key}":{value}"#)).collect();
    format!(r#"{{"context":{{"targetingKey":"{identifier}",{}}}}}"#, traits.join(","))
}

/// A request to the environment's `path`, with the headers that clients send.
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
    fn spaces_are_all_that_tells_bodies_apart() -> serde_json::Result<()> {
        let (python, compact) = (identity_body("somebody"), compact_identity_body("somebody"));
        assert!(python.contains(' ') && !compact.contains(' '));
        assert_eq!(
            serde_json::from_str::<serde_json::Value>(&python)?,
            serde_json::from_str::<serde_json::Value>(&compact)?
        );
        Ok(())
    }
}
