//! Valid HTTP requests: routes, queries, headers and bodies.
//!
//! The input is a request without its framing: the method and the target, lines of headers, an empty line, and the
//! body. The target adds a key, the length of the body, and the signature of a header [`UNSIGNED`].

use std::collections::HashSet;
use std::fmt::Write as _;
use std::time::{Duration, SystemTime};

use hmac_sha256::HMAC;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::environment::{CLIENT_KEY, SERVER_KEY};
use crate::server::{Answer, ENVIRONMENT, ORIGIN, OVERRIDE_KEY, Port, Then, exchange};

/// Headers that the target sets itself. It drops them from the input.
const FRAMING: [&str; 6] = ["connection", "content-length", "expect", "host", "transfer-encoding", "upgrade"];

/// Header of an input with overrides of flags as JSON. The target signs it, because random changes never give a valid
/// signature.
const UNSIGNED: &str = "x-unsigned-override";

/// Expected statuses of an answer.
const STATUSES: [u16; 16] = [200, 204, 304, 400, 401, 403, 404, 405, 408, 413, 414, 415, 421, 422, 431, 503];

/// Asserts that a request gets an expected answer, and that both dialects agree.
pub fn run(data: &[u8]) {
    let (head, body) = split(data);
    let (first, headers) = head.split_once('\n').unwrap_or((head, ""));
    let answer = ask(first, headers, body);
    if first == "POST /api/v1/identities/" && answer.status == 200 {
        dialects_agree(headers, body, &answer);
    }
}

/// Splits an input into head and body. The head ends before the first byte that is not UTF-8.
fn split(data: &[u8]) -> (&str, &[u8]) {
    let end = data.windows(2).position(|two| two == b"\n\n").unwrap_or(data.len());
    let (head, body) = data.split_at(end);
    let head =
        std::str::from_utf8(head).unwrap_or_else(|error| std::str::from_utf8(&head[..error.valid_up_to()]).unwrap());
    (head, body.get(2..).unwrap_or_default())
}

fn ask(first: &str, headers: &str, body: &[u8]) -> Answer {
    let (method, target) = first.split_once(' ').unwrap_or((first, "/"));
    // The target `heads` covers bytes that no HTTP library sends.
    let method: String = method.chars().filter(char::is_ascii_alphabetic).collect();
    let target: String = target.bytes().map(encoded).collect();
    let mut request =
        format!("{method} {target} HTTP/1.1\r\nhost: localhost:4777\r\ncontent-length: {}\r\n", body.len());
    let mut has_key = false;
    for line in headers.lines().filter(|line| !line.contains(char::is_control)) {
        let Some((name, value)) = line.split_once(": ") else { continue };
        let is_framing = FRAMING.iter().any(|framing| name.eq_ignore_ascii_case(framing));
        if is_framing || name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') {
            continue;
        }
        has_key |= name.eq_ignore_ascii_case("x-environment-key") || name.eq_ignore_ascii_case("x-api-key");
        if name.eq_ignore_ascii_case(UNSIGNED) {
            request += &format!("x-remora-override: {}\r\n", signed(value));
            continue;
        }
        request += &format!("{name}: {value}\r\n");
    }
    if !has_key {
        let key = if body.len() & 1 == 0 { SERVER_KEY } else { CLIENT_KEY };
        request += &format!("x-environment-key: {key}\r\n");
    }
    request += &format!("origin: {ORIGIN}\r\nconnection: close\r\n\r\n");
    let mut request = request.into_bytes();
    request.extend_from_slice(body);
    let bytes = exchange(Port::Data, &request, Then::Wait);
    assert!(!bytes.is_empty(), "there is no answer");
    let answer = Answer::read(&bytes);
    assert!(STATUSES.contains(&answer.status), "{answer:?}");
    let is_json = answer.header("content-type").is_some_and(|kind| kind.starts_with("application/json"));
    if is_json && method != "HEAD" && answer.header("content-encoding").is_none() {
        serde_json::from_slice::<&RawValue>(&answer.body).unwrap_or_else(|error| panic!("{error}: {answer:?}"));
    }
    answer
}

/// Value of a header that overrides flags, valid for one hour.
fn signed(json: &str) -> String {
    let expiry = SystemTime::now() + Duration::from_secs(3600);
    let expiry = expiry.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    let mut value = format!("{expiry} ");
    for byte in HMAC::mac(format!("{ENVIRONMENT} {expiry} {json}"), OVERRIDE_KEY) {
        write!(value, "{byte:02x}").unwrap();
    }
    value + " " + json
}

/// Returns a byte of a request target, percent-encoded if it is not graphic ASCII.
fn encoded(byte: u8) -> String {
    if byte.is_ascii_graphic() { char::from(byte).to_string() } else { format!("%{byte:02X}") }
}

#[derive(Deserialize)]
struct Identity<'a> {
    identifier: String,
    #[serde(borrow, default)]
    traits: Vec<Trait<'a>>,
}

#[derive(Deserialize)]
struct Trait<'a> {
    trait_key: String,
    #[serde(borrow)]
    trait_value: &'a RawValue,
}

#[derive(Deserialize)]
struct Flags<'a> {
    #[serde(borrow)]
    flags: Vec<Flag<'a>>,
}

#[derive(Deserialize)]
struct Flag<'a> {
    feature: Feature,
    enabled: bool,
    #[serde(borrow)]
    feature_state_value: &'a RawValue,
}

#[derive(Deserialize)]
struct Feature {
    name: String,
}

#[derive(Deserialize)]
struct OpenFeature<'a> {
    #[serde(borrow)]
    flags: Vec<OpenFeatureFlag<'a>>,
}

#[derive(Deserialize)]
struct OpenFeatureFlag<'a> {
    key: String,
    #[serde(borrow)]
    value: Option<&'a RawValue>,
}

/// Asserts that OFREP returns the same flags for this identity.
fn dialects_agree(headers: &str, body: &[u8], answer: &Answer) {
    let Ok(identity) = serde_json::from_slice::<Identity<'_>>(body) else { return };
    let mut names = HashSet::new();
    let special = ["targetingKey", "transient", "traits"];
    let is_plain = |own: &Trait<'_>| !special.contains(&own.trait_key.as_str()) && names.insert(own.trait_key.clone());
    if identity.identifier.is_empty() || !identity.traits.iter().all(is_plain) {
        return;
    }
    let quoted = |text: &str| serde_json::to_string(text).unwrap();
    let mut context = format!("{{\"context\":{{\"targetingKey\":{}", quoted(&identity.identifier));
    for own in &identity.traits {
        context += &format!(",{}:{}", quoted(&own.trait_key), own.trait_value);
    }
    context += "}}";
    // Without a key in the headers, the parity of the body's length chooses the key, so both bodies need the same
    // parity.
    if context.len() & 1 != body.len() & 1 {
        context.push(' ');
    }
    let other = ask("POST /ofrep/v1/evaluate/flags", headers, context.as_bytes());
    assert_eq!(other.status, 200, "{other:?}\n{context}");
    let Flags { flags } = serde_json::from_slice(&answer.body).unwrap();
    let OpenFeature { flags: others } = serde_json::from_slice(&other.body).unwrap();
    assert_eq!(flags.len(), others.len());
    for (flag, other) in flags.iter().zip(&others) {
        assert_eq!(flag.feature.name, other.key);
        let wanted = match (flag.feature_state_value.get(), flag.enabled) {
            ("null", enabled) => Some(if enabled { "true" } else { "false" }),
            (value, true) => Some(value),
            (_, false) => None,
        };
        assert_eq!(other.value.map(RawValue::get), wanted, "{}: {context}", other.key);
    }
}
