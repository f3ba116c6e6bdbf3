//! Floating-point numbers in JSON. (The snapshot crate implements the form of Python's `str`, which it hashes.)

use std::io::Write as _;

/// A double-precision number, as it is written in the body.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Float<'a>(&'a str);

impl<'a> Float<'a> {
    /// Wraps a token that the reader has checked.
    pub(super) fn of(token: &'a str) -> Float<'a> {
        Float(token)
    }

    /// Text of the number.
    pub(crate) fn token(self) -> &'a str {
        self.0
    }

    /// Value of the number. It is only parsed here, because parsing takes time.
    pub(crate) fn value(self) -> f64 {
        // The reader has checked the token, so parsing cannot fail.
        short(self.0).unwrap_or_else(|| self.0.parse().unwrap_or_default())
    }
}

/// Appends a finite number in the form of the edge proxy's serializer: the shortest digits that parse to the same
/// number, without an exponent from `1e-5` to below `1e16`.
pub(crate) fn write_json(value: f64, out: &mut Vec<u8>) {
    // Writing to a vector cannot fail. The standard library already uses exponents below `1e-4`.
    let _ = if (1e-5..1e-4).contains(&value.abs()) { write!(out, "{value}") } else { write!(out, "{value:?}") };
}

/// Appends a number of the body in that form, which most numbers already have.
pub(crate) fn write_again(float: Float<'_>, out: &mut Vec<u8>) {
    let token = float.token();
    match token.strip_prefix('-').unwrap_or(token).split_once('.') {
        Some((whole, fraction)) if is_shortest(whole, fraction) => out.extend_from_slice(token.as_bytes()),
        _ => write_json(float.value(), out),
    }
}

/// True if a JSON number is its own shortest form, provided that only digits follow its point. With up to 15 digits, no
/// shorter number parses to the same `f64`, unless the fraction ends with zeros. Without an exponent, and not close to
/// zero, the shortest form has no exponent either.
#[inline(always)]
pub(crate) fn is_shortest(whole: &str, fraction: &str) -> bool {
    whole.len() + fraction.len() <= 15
        && fraction.bytes().all(|byte| byte.is_ascii_digit())
        && (fraction == "0" || !fraction.ends_with("0"))
        && !(whole == "0" && fraction.starts_with("0000"))
}

/// Parses a number with a point and up to 15 digits. The digits form an integer that a double represents exactly, as it
/// does the power of ten, so the division rounds once, correctly (Clinger, *How to Read Floating Point Numbers
/// Accurately*, 1990).
#[inline(always)]
pub(crate) fn short(token: &str) -> Option<f64> {
    // One entry for each possible length in characters; one of the characters is the point.
    const POWERS: [f64; 16] = [1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15];
    let unsigned = token.strip_prefix('-').unwrap_or(token);
    let mut rest = unsigned.as_bytes().iter();
    let mut number = 0_u64;
    let mut whole = 0;
    if unsigned.len() > POWERS.len() {
        return None;
    }
    for byte in rest.by_ref() {
        match byte {
            b'0'..=b'9' => number = number * 10 + u64::from(byte - b'0'),
            b'.' => break,
            _ => return None,
        }
        whole += 1;
    }
    let power = POWERS.get(rest.len())?;
    for byte in rest {
        match byte {
            b'0'..=b'9' => number = number * 10 + u64::from(byte - b'0'),
            _ => return None,
        }
    }
    let value = number as f64 / power;
    (whole > 0 && unsigned.len() > whole + 1).then_some(if unsigned.len() == token.len() { value } else { -value })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_decimal_is_parsed_like_the_standard_library() {
        let same = |token: &str| {
            let short = short(token);
            let read: Option<f64> = token.parse().ok();
            assert!(
                short.is_none() || short.map(f64::to_bits) == read.map(f64::to_bits),
                "{token}: {short:?}, {read:?}"
            );
            short.is_some()
        };
        for token in
            ["0.0", "-0.0", "1249.5", "0.1", "-12.25", "0.00000000000001", "99999999999999.9", "123456789.012345"]
        {
            assert!(same(token), "{token}");
        }
        for token in [
            "",
            "-",
            ".",
            "1",
            "1.",
            ".5",
            "-.5",
            "1.5e3",
            "1.2.3",
            "--1.5",
            "+1.5",
            "1.0000000000000000",
            "x.5",
            "NaN",
        ] {
            assert!(!same(token), "{token}");
        }
        let mut number = 1_u64;
        for _ in 0..20_000 {
            number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let digits = (number >> 8 & 15) as u32;
            let (whole, fraction) = ((number >> 12) % 10_u64.pow(digits), number >> 61);
            assert!(same(&format!("{whole}.{fraction}")) || digits == 15);
            same(&format!("-{fraction}.{whole:0width$}", width = (number >> 9 & 15) as usize));
        }
    }

    #[test]
    fn token_in_shortest_form_is_written_unchanged() {
        let mut taken = 0;
        for whole in ["0", "1", "-0", "-7", "34", "1249", "99999999999999", "123456789012345"] {
            for fraction in
                [".0", ".5", ".50", ".00", ".1", ".25", ".0001", ".00001", ".123456789012345", ".5e3", "e3", ""]
            {
                let token = format!("{whole}{fraction}");
                if token.trim_start_matches('-').split_once('.').is_some_and(|(whole, rest)| is_shortest(whole, rest)) {
                    taken += 1;
                    assert_eq!(json(token.parse().unwrap()), token);
                }
            }
        }
        assert!(taken > 30, "{taken}");
    }

    fn json(value: f64) -> String {
        let mut out = Vec::new();
        write_json(value, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn float_is_written_in_the_form_of_the_edge_proxy() {
        for (value, text) in [
            (2.0, "2.0"),
            (-0.0, "-0.0"),
            (45.5, "45.5"),
            (0.1 + 0.2, "0.30000000000000004"),
            (0.0001, "0.0001"),
            (0.00001, "0.00001"),
            (-0.000_012, "-0.000012"),
            (0.000_001, "1e-6"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e16"),
            (1.5e300, "1.5e300"),
        ] {
            assert_eq!(json(value), text);
        }
    }
}
