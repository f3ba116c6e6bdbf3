//! Numbers as Python defines them: integers of any size, coercion of strings, and the text of floats.

use std::cmp::Ordering;
use std::fmt::Write;

/// An integer of any size. A `Big` integer does not fit into an `i64`, and its digits have no leading zeros.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Integer<'a> {
    /// An integer that fits into an `i64`.
    Small(i64),
    /// An integer that does not fit into an `i64`.
    Big {
        /// True if negative.
        negative: bool,
        /// Decimal digits of the magnitude.
        digits: &'a str,
    },
}

/// Maximum number of digits that always fit into an `i64`.
const SURELY_SMALL: usize = 18;

impl<'a> Integer<'a> {
    /// Reads `-?[0-9]+` and ignores leading zeros. Not inlined, because conditions rarely call it, and it would enlarge
    /// them.
    #[must_use]
    #[inline(never)]
    pub fn parse(text: &'a str) -> Option<Self> {
        let (negative, digits) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        if digits.is_empty() {
            return None;
        }
        if digits.len() <= SURELY_SMALL {
            let next = |number, byte: u8| byte.is_ascii_digit().then(|| number * 10 + i64::from(byte - b'0'));
            let magnitude = digits.bytes().try_fold(0, next)?;
            return Some(Self::Small(if negative { -magnitude } else { magnitude }));
        }
        Self::parse_long(text, negative, digits)
    }

    #[cold]
    fn parse_long(text: &'a str, negative: bool, digits: &'a str) -> Option<Self> {
        if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        if let Ok(small) = text.parse() {
            return Some(Self::Small(small));
        }
        Some(Self::Big { negative, digits: digits.trim_start_matches('0') })
    }

    /// Returns the nearest `f64`. `None` if Python's conversion overflows.
    pub(crate) fn to_f64(self) -> Option<f64> {
        match self {
            Self::Small(small) => Some(small as f64),
            Self::Big { negative, digits } => {
                let magnitude: f64 = digits.parse().ok()?;
                magnitude.is_finite().then_some(if negative { -magnitude } else { magnitude })
            }
        }
    }
}

impl PartialOrd for Integer<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Integer<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        use Integer::{Big, Small};
        match (*self, *other) {
            (Small(a), Small(b)) => a.cmp(&b),
            (Small(_), Big { negative, .. }) => {
                if negative {
                    Ordering::Greater
                } else {
                    Ordering::Less
                }
            }
            (Big { negative, .. }, Small(_)) => {
                if negative {
                    Ordering::Less
                } else {
                    Ordering::Greater
                }
            }
            (Big { negative: true, .. }, Big { negative: false, .. }) => Ordering::Less,
            (Big { negative: false, .. }, Big { negative: true, .. }) => Ordering::Greater,
            (Big { negative: false, digits: a }, Big { digits: b, .. }) => by_magnitude(a.as_bytes(), b.as_bytes()),
            (Big { negative: true, digits: a }, Big { digits: b, .. }) => by_magnitude(b.as_bytes(), a.as_bytes()),
        }
    }
}

/// Compares digits without leading zeros by value.
pub(crate) fn by_magnitude(a: &[u8], b: &[u8]) -> Ordering {
    a.len().cmp(&b.len()).then_with(|| a.cmp(b))
}

/// The coerced value of a string trait: Flagsmith's engine reads number-like strings as numbers before it compares.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Coerced<'a> {
    Integer(Integer<'a>),
    Float(f64),
    Text,
}

/// Maximum number of digits that Python converts to an integer; it raises an exception for more.
pub const PYTHON_INT_DIGITS: usize = 4300;

/// Coerces a string: `-?[0-9]+` is an integer, `-?[0-9]+\.[0-9]+` a float, anything else stays a string.
pub(crate) fn coerce(text: &str) -> Coerced<'_> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    if !digits.as_bytes().first().is_some_and(u8::is_ascii_digit) {
        return Coerced::Text; // the usual case, decided by one byte
    }
    let whole = digits.bytes().take_while(u8::is_ascii_digit).count();
    match digits.as_bytes().get(whole..) {
        Some([]) if whole <= PYTHON_INT_DIGITS => Integer::parse(text).map_or(Coerced::Text, Coerced::Integer),
        Some([b'.', fraction @ ..]) if !fraction.is_empty() && fraction.iter().all(u8::is_ascii_digit) => {
            text.parse().map_or(Coerced::Text, Coerced::Float)
        }
        _ => Coerced::Text,
    }
}

/// Appends Python's `repr` of a float: the shortest digits that read back as the same number, with an exponent of at
/// least two digits below 1e-4 and from 1e16 on.
pub fn write_float(float: f64, out: &mut String) {
    if float.is_nan() {
        out.push_str("nan");
        return;
    }
    if float.is_infinite() {
        out.push_str(if float < 0.0 { "-inf" } else { "inf" });
        return;
    }
    let mut shortest = Digits::default();
    // Writing into `Digits` fails only if it is full, and the shortest form of a float has at most 24 characters.
    let _ = write!(shortest, "{float:e}");
    let places = shortest.as_str().bytes().filter(u8::is_ascii_digit).count();
    if places >= 16 {
        shortest = evenly(float, shortest);
    }
    let text = shortest.as_str();
    let (mantissa, exponent) = text.split_once('e').unwrap_or((text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let (sign, mantissa) = mantissa.strip_prefix('-').map_or(("", mantissa), |rest| ("-", rest));
    let (first, rest) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    out.push_str(sign);
    if (-4..16).contains(&exponent) {
        positional(first, rest, exponent, out);
        return;
    }
    out.push_str(first);
    if !rest.is_empty() {
        out.push('.');
        out.push_str(rest);
    }
    out.push_str(if exponent < 0 { "e-" } else { "e+" });
    let _ = write!(out, "{:02}", exponent.unsigned_abs());
}

/// Returns the shortest form that Python chooses. If two shortest forms are equally near, which takes 16 digits, Python
/// chooses the one with an even last digit, like rounding to this number of digits does.
fn evenly(float: f64, shortest: Digits) -> Digits {
    let mantissa = shortest.as_str().split('e').next().unwrap_or_default();
    let behind_point = mantissa.split_once('.').map_or(0, |(_, behind)| behind.len());
    let mut rounded = Digits::default();
    match write!(rounded, "{float:.behind_point$e}") {
        Ok(()) if rounded.as_str().parse() == Ok(float) => rounded,
        _ => shortest,
    }
}

/// Appends `first.rest` times ten to the power of `exponent` in positional notation, with at least one decimal.
fn positional(first: &str, rest: &str, exponent: i32, out: &mut String) {
    if exponent < 0 {
        out.push_str("0.");
        for _ in 1..-exponent {
            out.push('0');
        }
        out.push_str(first);
        out.push_str(rest);
        return;
    }
    let whole = usize::try_from(exponent).unwrap_or(0);
    out.push_str(first);
    if let Some((before, behind)) = rest.split_at_checked(whole) {
        out.push_str(before);
        out.push('.');
        out.push_str(if behind.is_empty() { "0" } else { behind });
    } else {
        out.push_str(rest);
        for _ in rest.len()..whole {
            out.push('0');
        }
        out.push_str(".0");
    }
}

/// A short text on the stack.
#[derive(Default)]
struct Digits {
    bytes: [u8; 32],
    length: usize,
}

impl Digits {
    fn as_str(&self) -> &str {
        self.bytes.get(..self.length).and_then(|bytes| std::str::from_utf8(bytes).ok()).unwrap_or("0")
    }
}

impl Write for Digits {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        let end = self.length + text.len();
        self.bytes.get_mut(self.length..end).ok_or(std::fmt::Error)?.copy_from_slice(text.as_bytes());
        self.length = end;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn repr(float: f64) -> String {
        let mut out = String::new();
        write_float(float, &mut out);
        out
    }

    #[test]
    #[expect(clippy::excessive_precision, reason = "these lie between two shortest forms, which is the point")]
    fn floats_are_written_like_python() {
        for (float, text) in [
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (1.0, "1.0"),
            (1.5, "1.5"),
            (100.0, "100.0"),
            (0.1, "0.1"),
            (1e21, "1e+21"),
            (1e-7, "1e-07"),
            (1.25e-5, "1.25e-05"),
            (0.0001, "0.0001"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16"),
            (123_456.789, "123456.789"),
            (-2.5e100, "-2.5e+100"),
            (5e-324, "5e-324"),
            (f64::MAX, "1.7976931348623157e+308"),
            (12345678.9, "12345678.9"),
            (1_868_498_319_353_706.25, "1868498319353706.2"),
            (1_868_498_319_353_706.75, "1868498319353706.8"),
        ] {
            assert_eq!(repr(float), text);
        }
    }

    #[test]
    fn integers_of_any_size_are_ordered() {
        let ordered = [
            "-99999999999999999999",
            "-10000000000000000000",
            "-9223372036854775808",
            "-1",
            "0",
            "0009",
            "9223372036854775807",
            "9223372036854775808",
            "99999999999999999999",
        ];
        for (i, a) in ordered.iter().enumerate() {
            for (j, b) in ordered.iter().enumerate() {
                assert_eq!(Integer::parse(a).unwrap().cmp(&Integer::parse(b).unwrap()), i.cmp(&j), "{a} {b}");
            }
        }
        assert_eq!(Integer::parse("-0"), Integer::parse("0"));
        assert_eq!(Integer::parse("0000000000000000000000007"), Some(Integer::Small(7)));
        assert_eq!(Integer::parse("+1"), None);
    }

    #[test]
    fn text_that_is_no_plain_number_is_not_coerced() {
        assert_eq!(coerce("007"), Coerced::Integer(Integer::Small(7)));
        assert_eq!(coerce("-1.50"), Coerced::Float(-1.5));
        for text in ["", "-", "+1", "1.", ".5", "1e3", " 1", "1 ", "1.2.3", "１", "0x1", "--1", "1.5x"] {
            assert_eq!(coerce(text), Coerced::Text, "{text:?}");
        }
    }
}
