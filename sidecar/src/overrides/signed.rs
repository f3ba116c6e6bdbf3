//! Reads the overrides that a request brings in a signed header.
//!
//! The header is `EXPIRY SIGNATURE JSON`: the second since 1970 at which it expires, the HMAC-SHA256 of
//! `ENVIRONMENT EXPIRY JSON` in 64 hexadecimal digits, and the flags in the grammar of [`super::read`]. So a shell can
//! make one: `printf '%s %s %s' ENVIRONMENT EXPIRY JSON | openssl dgst -sha256 -hmac KEY`.

use std::io;
use std::time::{Duration, SystemTime};

use hmac_sha256::HMAC;
use remora_snapshot::{FlagOverride, OverriddenBy};

use super::GRAMMAR;
use crate::clock::Utc;

/// Largest length of the header in bytes.
pub(crate) const MAX_BYTES: usize = 4096;
/// Smallest size of a key in bytes, without white space at its end.
const MIN_KEY: usize = 32;
/// Largest size of a key in bytes, without white space at its end.
pub(crate) const MAX_KEY: usize = 256;
/// Longest time from a request to the expiry of its header.
const MAX_LIFETIME: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// Reason why a header is refused.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refused {
    /// The sidecar has no usable key.
    #[error(
        "this sidecar has no key of 32 to 256 bytes: create the Secret that the pod's annotation remora.dev/override-key names, with the key under its name `key`"
    )]
    NoKey,
    /// The key exists and cannot be read.
    #[error("this sidecar cannot read its key ({0}): try again, and look at the pod's node if this lasts")]
    UnreadableKey(io::ErrorKind),
    /// The header is larger than [`MAX_BYTES`].
    #[error("it has more than 4096 bytes: override fewer flags, or set shorter values")]
    TooLong,
    /// The header has another form.
    #[error("it is not `EXPIRY SIGNATURE JSON`: make it with the command `sign` of kubectl remora")]
    Form,
    /// The signature is another one.
    #[error(
        "it is not signed for environment {0:?} with this sidecar's key: sign it for this environment, with the key in the Secret that the pod's annotation remora.dev/override-key names"
    )]
    Signature(String),
    /// The header has expired.
    #[error("it expired at {0}Z: sign it again")]
    Expired(Utc),
    /// The header expires too late.
    #[error("it expires more than 7 days from now: sign it with an earlier expiry")]
    ExpiresLate,
    /// The flags have another form.
    #[error("its flags are not {GRAMMAR}")]
    Flags,
}

/// Checks a header, and returns its overrides.
///
/// # Errors
/// The header is not valid at this time, for this environment and with this key. Nothing of it is used then.
pub(crate) fn read(
    header: &[u8],
    key: &[u8],
    environment: &str,
    now: SystemTime,
) -> Result<Vec<FlagOverride>, Refused> {
    let key = key.trim_ascii_end();
    if !(MIN_KEY..=MAX_KEY).contains(&key.len()) {
        return Err(Refused::NoKey);
    }
    if header.len() > MAX_BYTES {
        return Err(Refused::TooLong);
    }
    let text = std::str::from_utf8(header).map_err(|_| Refused::Form)?;
    let mut parts = text.splitn(3, ' ');
    let (Some(expiry), Some(signature), Some(json)) = (parts.next(), parts.next(), parts.next()) else {
        return Err(Refused::Form);
    };
    let seconds = expiry.parse().map_err(|_| Refused::Form)?;
    let signature = digest(signature).ok_or(Refused::Form)?;
    let mut signed = HMAC::new(key);
    for part in [environment, " ", expiry, " ", json] {
        signed.update(part);
    }
    if !signed.finalize_verify(&signature) {
        return Err(Refused::Signature(environment.to_owned()));
    }
    let Some(expiry) = SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds)) else {
        return Err(Refused::ExpiresLate);
    };
    match expiry.duration_since(now) {
        Ok(Duration::ZERO) | Err(_) => Err(Refused::Expired(Utc(expiry))),
        Ok(left) if left > MAX_LIFETIME => Err(Refused::ExpiresLate),
        Ok(_) => super::read(json, OverriddenBy::Request).ok_or(Refused::Flags),
    }
}

/// Reads 64 hexadecimal digits.
fn digest(digits: &str) -> Option<[u8; 32]> {
    let (pairs, []) = digits.as_bytes().as_chunks() else { return None };
    let mut digest = [0; 32];
    if pairs.len() != digest.len() {
        return None;
    }
    for (byte, [high, low]) in digest.iter_mut().zip(pairs) {
        let digit = |digit: &u8| char::from(*digit).to_digit(16);
        *byte = u8::try_from(digit(high)? << 4 | digit(low)?).ok()?;
    }
    Some(digest)
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;

    const KEY: &[u8] = b"0123456789abcdef0123456789abcdef";
    const FLAGS: &str = r#"{"banner":{"enabled":true}}"#;
    const NOW: u64 = 1_800_000_000;

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    /// Signs for the environment `shop` with [`KEY`].
    fn signed(expiry: &str, json: &str) -> String {
        let mac = HMAC::mac(format!("shop {expiry} {json}"), KEY);
        let digits = mac.iter().fold(String::new(), |mut digits, byte| {
            write!(digits, "{byte:02x}").unwrap();
            digits
        });
        format!("{expiry} {digits} {json}")
    }

    fn read_now(header: &str) -> Result<Vec<FlagOverride>, Refused> {
        read(header.as_bytes(), KEY, "shop", at(NOW))
    }

    #[test]
    fn header_that_openssl_signed_is_read() {
        // printf '%s %s %s' shop 1800000060 '{"banner":{"enabled":true}}' | openssl dgst -sha256 -hmac 0123456789abcdef0123456789abcdef
        let header = format!("1800000060 23db6d1d54b54e8d134412e01b7b1df4ed809ba3da99b0a5852f31ed3f9b2393 {FLAGS}");
        let expected =
            FlagOverride { flag: "banner".to_owned(), enabled: Some(true), value: None, by: OverriddenBy::Request };
        assert_eq!(read_now(&header), Ok(vec![expected]));
        let with_line_break = [KEY, b"\n"].concat();
        assert!(read(header.as_bytes(), &with_line_break, "shop", at(NOW)).is_ok());
        let (expiry_and_digits, _) = header.split_at(header.len() - FLAGS.len());
        assert!(read_now(&(expiry_and_digits.to_uppercase() + FLAGS)).is_ok());
    }

    #[test]
    fn header_of_another_environment_key_expiry_or_flag_is_refused() {
        let header = signed("1800000060", FLAGS);
        let refused = Err(Refused::Signature("shop".to_owned()));
        assert!(read_now(&header).is_ok());
        assert_eq!(read_now(&header.replacen("1800000060", "1800000061", 1)), refused);
        assert_eq!(read_now(&header.replace("banner", "limit")), refused);
        assert_eq!(read_now(&header.replace("true", "false")), refused);
        assert_eq!(read(header.as_bytes(), &[b'x'; 32], "shop", at(NOW)), refused);
        assert_eq!(read(header.as_bytes(), KEY, "shopping", at(NOW)), Err(Refused::Signature("shopping".to_owned())));
    }

    #[test]
    fn header_is_valid_until_its_expiry_and_at_most_seven_days() {
        let week = MAX_LIFETIME.as_secs();
        let of = |expiry: u64| read_now(&signed(&expiry.to_string(), FLAGS));
        assert!(of(NOW + 1).is_ok() && of(NOW + week).is_ok());
        for expired in [0, NOW - 1, NOW] {
            assert_eq!(of(expired), Err(Refused::Expired(Utc(at(expired)))));
        }
        for late in [NOW + week + 1, u64::MAX] {
            assert_eq!(of(late), Err(Refused::ExpiresLate));
        }
        assert!(of(NOW - 1).unwrap_err().to_string().contains("2027-01-15T07:59:59.000000Z"));
    }

    #[test]
    fn header_and_key_beyond_their_sizes_are_refused() {
        let of_length = |length: usize| {
            let padding = length - signed("1800000060", r#"{"banner":{"value":""}}"#).len();
            signed("1800000060", &format!(r#"{{"banner":{{"value":"{}"}}}}"#, "x".repeat(padding)))
        };
        assert!(read_now(&of_length(MAX_BYTES)).is_ok());
        assert_eq!(read_now(&of_length(MAX_BYTES + 1)), Err(Refused::TooLong));
        for length in [0, MIN_KEY - 1, MAX_KEY + 1] {
            assert_eq!(read(b"x", &vec![b'k'; length], "shop", at(NOW)), Err(Refused::NoKey), "{length}");
        }
        for length in [MIN_KEY, MAX_KEY] {
            assert_eq!(read(b"x", &vec![b'k'; length], "shop", at(NOW)), Err(Refused::Form), "{length}");
        }
        let flags = |count: usize| {
            let flags: Vec<String> = (0..count).map(|number| format!(r#""f{number}":{{"enabled":true}}"#)).collect();
            read_now(&signed("1800000060", &format!("{{{}}}", flags.join(","))))
        };
        assert_eq!(flags(super::super::MAX_FLAGS).unwrap().len(), super::super::MAX_FLAGS);
        assert_eq!(flags(super::super::MAX_FLAGS + 1), Err(Refused::Flags));
    }

    #[test]
    fn header_of_another_form_is_refused() {
        let valid = signed("1800000060", FLAGS);
        let digits = valid.split(' ').nth(1).unwrap();
        for header in [
            String::new(),
            FLAGS.to_owned(),
            format!("1800000060 {FLAGS}"),
            format!("1800000060 {digits}"),
            format!("tomorrow {digits} {FLAGS}"),
            format!("-1 {digits} {FLAGS}"),
            format!("99999999999999999999 {digits} {FLAGS}"),
            format!("1800000060 {} {FLAGS}", &digits[1..]),
            format!("1800000060 {digits}0 {FLAGS}"),
            format!("1800000060 {digits}00 {FLAGS}"),
            format!("1800000060 {}g {FLAGS}", &digits[1..]),
            format!("1800000060 {}\u{f6} {FLAGS}", &digits[2..]),
            format!("1800000060  {digits} {FLAGS}"),
        ] {
            assert_eq!(read_now(&header), Err(Refused::Form), "{header}");
        }
        assert_eq!(read(b"\xff", KEY, "shop", at(NOW)), Err(Refused::Form));
        assert_eq!(read_now(&signed("1800000060", r#"{"banner":true}"#)), Err(Refused::Flags));
        assert_eq!(read_now(&signed("1800000060", "")), Err(Refused::Flags));
    }
}
