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

/// The body of `identities/`.
#[must_use]
pub fn identity_body(identifier: &str) -> String {
    let traits: Vec<String> =
        TRAITS.iter().map(|(key, value)| format!(r#"{{"trait_key": "{key}", "trait_value": {value}}}"#)).collect();
    format!(r#"{{"identifier": "{identifier}", "traits": [{}]}}"#, traits.join(", "))
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
