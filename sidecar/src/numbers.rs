//! Floating point numbers as JSON. (As Python's `str` has them, the snapshot crate knows: it hashes them.)

use std::io::Write as _;

/// Appends a finite number as the edge proxy's serializer writes it: the shortest digits that read
/// back as the same number, without exponent from `1e-5` up to below `1e16`.
pub(crate) fn write_json(value: f64, out: &mut Vec<u8>) {
    // Writing to a vector cannot fail. The standard form turns to exponents one decade earlier.
    let _ = if (1e-5..1e-4).contains(&value.abs()) { write!(out, "{value}") } else { write!(out, "{value:?}") };
}

#[cfg(test)]
mod tests {
    use super::*;

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
