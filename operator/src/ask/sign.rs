//! `kubectl remora sign`: a signed header by which one request overrides flags, for people who test.

use std::{fmt, ops::RangeInclusive};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use ring::hmac;
use serde::Serialize;

use super::{
    answer::{CommandOutput, TextOutput},
    cluster::Cluster,
    failure::Failure,
};
use crate::{
    api::{Period, names::sidecar},
    injection::flag_overrides::{FlagOverrides, GRAMMAR},
};

/// Name of the header.
const HEADER: &str = "X-Remora-Override";
/// Largest length of the header's value in bytes. The sidecar has the same limits.
const BYTES_MAX: usize = 4096;
/// Sizes of a key in bytes, without white space at its end.
const KEY_BYTES: RangeInclusive<usize> = 32..=256;
/// Times until a header expires.
const LIFETIMES: RangeInclusive<Period> = Period::seconds(1)..=Period::seconds(7 * 24 * 60 * 60);

/// Make a header that overrides flags for the requests that it is sent with, until it expires.
///
/// Pods read the header if their annotation remora.dev/override-key names the Secret.
#[derive(Debug, clap::Args)]
pub(super) struct Sign {
    /// Name of the FeatureEnvironment.
    environment: String,
    /// Flags with their state and value, such as `{"banner": {"enabled": true, "value": "Sale"}}`.
    overrides: String,
    /// Secret with the key, in the same namespace.
    #[arg(long, value_name = "NAME")]
    secret: String,
    /// Time until the header expires, at most seven days (168h).
    #[arg(long = "for", value_name = "TIME", default_value = "1h")]
    lifetime: Period,
}

/// A signed header.
#[derive(Debug, Serialize)]
pub(super) struct Signed {
    environment: String,
    expires: Timestamp,
    header: &'static str,
    value: String,
}

impl CommandOutput for Signed {
    fn text(&self, output: &mut TextOutput) -> fmt::Result {
        output.line(format!("{}: {}", self.header, self.value))
    }
}

/// Reads the key, and signs the overrides with it.
pub(super) async fn sign(cluster: &Cluster, asked: &Sign) -> Result<Signed, Failure> {
    let Some(overrides) = FlagOverrides::parse(&asked.overrides) else {
        return Err(Failure::Usage(format!("the overrides must be {GRAMMAR}")));
    };
    if !LIFETIMES.contains(&asked.lifetime) {
        return Err(Failure::Usage("--for must be from 1s to 168h, seven days".to_owned()));
    }
    cluster.environment(&asked.environment).await?;
    let key = key(cluster, &asked.secret).await?;
    let expires = Timestamp::now() + asked.lifetime.get();
    let value = value(key.trim_ascii_end(), &asked.environment, expires, &overrides);
    if value.len() > BYTES_MAX {
        let length = value.len();
        return Err(Failure::Usage(format!(
            "the header would have {length} bytes, and at most {BYTES_MAX} are accepted: override fewer flags, or set shorter values"
        )));
    }
    Ok(Signed { environment: asked.environment.clone(), expires, header: HEADER, value })
}

async fn key(cluster: &Cluster, secret: &str) -> Result<Vec<u8>, Failure> {
    let namespace = cluster.namespace();
    let name = sidecar::OVERRIDE_KEY;
    let found: Option<Secret> = cluster.get(namespace, secret).await?;
    let key = found.and_then(|found| found.data?.remove(name)).map(|key| key.0);
    key.filter(|key| KEY_BYTES.contains(&key.trim_ascii_end().len())).ok_or_else(|| {
        Failure::Usage(format!(
            "namespace {namespace} has no Secret {secret:?} with 32 to 256 bytes under the name {name:?}: create it"
        ))
    })
}

/// Returns `EXPIRY SIGNATURE JSON`, as `sidecar/src/overrides/signed.rs` reads it.
fn value(key: &[u8], environment: &str, expires: Timestamp, overrides: &FlagOverrides) -> String {
    let (expiry, json) = (expires.as_second(), ascii(&overrides.argument()));
    let key = hmac::Key::new(hmac::HMAC_SHA256, key);
    let signature = hmac::sign(&key, format!("{environment} {expiry} {json}").as_bytes());
    let digits: String = signature.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{expiry} {digits} {json}")
}

/// Returns JSON with escapes for all characters that a header cannot have.
fn ascii(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for character in json.chars() {
        if matches!(character, ' '..='~') {
            text.push(character);
        } else {
            text.extend(character.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signature_is_the_one_that_openssl_makes_and_the_sidecar_reads() {
        // The test `header_that_openssl_signed_is_read` of the sidecar has the same header.
        let overrides = FlagOverrides::parse(r#"{"banner": {"enabled": true}}"#).unwrap();
        let expires = Timestamp::from_second(1_800_000_060).unwrap();
        assert_eq!(
            value(b"0123456789abcdef0123456789abcdef", "shop", expires, &overrides),
            r#"1800000060 23db6d1d54b54e8d134412e01b7b1df4ed809ba3da99b0a5852f31ed3f9b2393 {"banner":{"enabled":true}}"#
        );
    }

    #[test]
    fn characters_beyond_ascii_are_escaped() {
        let overrides = FlagOverrides::parse("{\"b\u{e4}r\": {\"value\": \"\u{1f600}\u{7f}\\n$\"}}").unwrap();
        let json = ascii(&overrides.argument());
        assert_eq!(json, r#"{"b\u00e4r":{"value":"\ud83d\ude00\u007f\n\u0024"}}"#);
        assert_eq!(FlagOverrides::parse(&json), Some(overrides));
    }
}
