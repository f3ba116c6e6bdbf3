//! Floating point numbers as text, in the two forms that Flagsmith's Python has.

use std::fmt::Write as _;
use std::io::Write as _;

/// Appends a finite number as the edge proxy's serializer writes it: the shortest digits that read
/// back as the same number, without exponent from `1e-5` up to below `1e16`.
pub(crate) fn write_json(value: f64, out: &mut Vec<u8>) {
    // Writing to a vector cannot fail. The standard form turns to exponents one decade earlier.
    let _ = if (1e-5..1e-4).contains(&value.abs()) { write!(out, "{value}") } else { write!(out, "{value:?}") };
}

/// Appends a finite number as Python's `str` writes it: exponents are signed, have two digits at
/// least, and stand for what is below `1e-4`.
pub(crate) fn write_python(value: f64, out: &mut String) {
    let start = out.len();
    // Writing to a string cannot fail.
    let _ = write!(out, "{value:?}");
    let Some((mantissa, exponent)) = out.get(start..).and_then(|text| text.split_once('e')) else {
        return;
    };
    let Ok(exponent) = exponent.parse::<i32>() else { return };
    let end = start + mantissa.len();
    out.truncate(end);
    let _ = write!(out, "e{exponent:+03}");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(value: f64) -> String {
        let mut out = Vec::new();
        write_json(value, &mut out);
        String::from_utf8(out).unwrap()
    }

    fn python(value: f64) -> String {
        let mut out = String::from(">");
        write_python(value, &mut out);
        out
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

    #[test]
    fn the_python_form() {
        for (value, text) in [
            (1.0, ">1.0"),
            (0.0001, ">0.0001"),
            (0.00001, ">1e-05"),
            (1.5e-7, ">1.5e-07"),
            (1e15, ">1000000000000000.0"),
            (1e16, ">1e+16"),
            (1.25e21, ">1.25e+21"),
            (5e-324, ">5e-324"),
        ] {
            assert_eq!(python(value), text);
        }
    }
}
