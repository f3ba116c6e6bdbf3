//! Floating point numbers as JSON. (As Python's `str` has them, the snapshot crate knows: it hashes them.)

use std::io::Write as _;

/// Appends a finite number as the edge proxy's serializer writes it: the shortest digits that read
/// back as the same number, without exponent from `1e-5` up to below `1e16`.
pub(crate) fn write_json(value: f64, out: &mut Vec<u8>) {
    // Writing to a vector cannot fail. The standard form turns to exponents one decade earlier.
    let _ = if (1e-5..1e-4).contains(&value.abs()) { write!(out, "{value}") } else { write!(out, "{value:?}") };
}

/// The same of a number that came as this token, which mostly is that form already.
pub(crate) fn write_again(token: &str, value: f64, out: &mut Vec<u8>) {
    if is_shortest(token) { out.extend_from_slice(token.as_bytes()) } else { write_json(value, out) }
}

/// Is a JSON number the shortest form of itself? With up to 15 digits no shorter one reads back as the same `f64`, unless
/// zeros stand at its end; where there is no exponent and it is not nearly zero, the form has none either.
fn is_shortest(token: &str) -> bool {
    let digits = token.strip_prefix('-').unwrap_or(token);
    let Some((whole, fraction)) = digits.split_once('.') else { return false };
    digits.len() <= 16
        && fraction.bytes().all(|byte| byte.is_ascii_digit())
        && (fraction == "0" || !fraction.ends_with('0'))
        && !(whole == "0" && fraction.starts_with("0000"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_for_the_shortest_form_is_it() {
        let mut taken = 0;
        for whole in ["0", "1", "-0", "-7", "34", "1249", "99999999999999", "123456789012345"] {
            for fraction in
                [".0", ".5", ".50", ".00", ".1", ".25", ".0001", ".00001", ".123456789012345", ".5e3", "e3", ""]
            {
                let token = format!("{whole}{fraction}");
                if is_shortest(&token) {
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
    fn the_json_form() {
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
