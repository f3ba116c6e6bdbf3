//! Semantic versions: strict SemVer 2, compared by precedence, which ignores build metadata.

use std::cmp::Ordering;

use crate::values::number::{PYTHON_INT_DIGITS, by_magnitude};

/// The parts of a version. Numbers are digits, because SemVer has no largest number. They have at most
/// [`PYTHON_INT_DIGITS`] digits, as Flagsmith's engine converts them to Python's integers. Numbers of a prerelease may
/// have more: the engine converts them only when it compares them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Version<'a> {
    numbers: [&'a [u8]; 3],
    /// Text after `-`, if any.
    pub prerelease: Option<&'a [u8]>,
    /// Text after `+`, if any.
    pub build: Option<&'a [u8]>,
}

impl<'a> Version<'a> {
    /// Reads `MAJOR.MINOR.PATCH[-PRERELEASE][+BUILD]`. Leading zeros in numbers, a leading `v` and numbers of more than
    /// [`PYTHON_INT_DIGITS`] digits are errors. One line end after the version is not a part of it, as for Flagsmith's API, which reads versions by `semver` 3.0.
    #[must_use]
    pub fn parse(text: &'a [u8]) -> Option<Self> {
        let text = text.strip_suffix(b"\n").unwrap_or(text);
        let (text, build) = split_at_byte(text, b'+');
        let (text, prerelease) = split_at_byte(text, b'-');
        let mut numbers = text.split(|b| *b == b'.');
        let version = Self { numbers: [numbers.next()?, numbers.next()?, numbers.next()?], prerelease, build };
        let identifiers_hold =
            |text: Option<&[u8]>, valid: fn(&[u8]) -> bool| text.is_none_or(|t| t.split(|b| *b == b'.').all(valid));
        (numbers.next().is_none()
            && version.numbers.iter().all(|n| is_number(n) && n.len() <= PYTHON_INT_DIGITS)
            && identifiers_hold(prerelease, |i| {
                is_identifier(i) && (is_number(i) || !i.iter().all(u8::is_ascii_digit))
            })
            && identifiers_hold(build, is_identifier))
        .then_some(version)
    }

    /// Compares by precedence (SemVer 2, section 11). `None` if the numbers are equal and a prerelease has a number of
    /// more than [`PYTHON_INT_DIGITS`] digits: Flagsmith's engine raises then, which makes every comparison false.
    #[must_use]
    pub fn precedence(&self, other: &Self) -> Option<Ordering> {
        for (a, b) in self.numbers.iter().zip(other.numbers) {
            let order = by_magnitude(a, b);
            if order != Ordering::Equal {
                return Some(order);
            }
        }
        if [self.prerelease, other.prerelease].into_iter().flatten().any(has_long_number) {
            return None;
        }
        Some(match (self.prerelease, other.prerelease) {
            (None, None) => Ordering::Equal,
            (None, Some(_)) => Ordering::Greater,
            (Some(_), None) => Ordering::Less,
            (Some(a), Some(b)) => by_identifiers(a, b),
        })
    }
}

/// Compares two versions. `None` unless both texts are versions that [`Version::precedence`] orders.
#[must_use]
pub fn compare(left: &[u8], right: &[u8]) -> Option<Ordering> {
    Version::parse(left)?.precedence(&Version::parse(right)?)
}

/// A release whose numbers are below 2²¹, in 63 bits: a breakpoint of the segment index.
pub(crate) type Packed = u64;

const PACKED_BITS: u32 = 21;

/// Packs a version. `None` if it has a prerelease or build metadata, or if a number is too large.
pub(crate) fn pack(text: &[u8]) -> Option<Packed> {
    let version = Version::parse(text).filter(|version| version.prerelease.is_none() && version.build.is_none())?;
    let (numbers, _) = position(&version);
    let fits = numbers.iter().all(|number| *number < 1 << PACKED_BITS);
    fits.then(|| numbers.iter().fold(0, |packed, number| packed << PACKED_BITS | number))
}

/// Position of a version among packed ones: its numbers, and true if it is a release.
pub(crate) type Position = ([u64; 3], bool);

/// Returns the position of a packed version.
pub(crate) fn unpack(packed: Packed) -> Position {
    let number = |place: u32| packed >> (place * PACKED_BITS) & ((1 << PACKED_BITS) - 1);
    ([number(2), number(1), number(0)], true)
}

/// Returns the position of a version. A prerelease with a number of more than [`PYTHON_INT_DIGITS`] digits has a
/// position like any other: the values of an index are shorter. Numbers beyond 64 bits become the largest number, which
/// is above all packed ones.
pub(crate) fn position(version: &Version<'_>) -> Position {
    let number = |digits: &[u8]| {
        digits.iter().fold(0_u64, |number, digit| number.saturating_mul(10).saturating_add(u64::from(digit - b'0')))
    };
    (version.numbers.map(number), version.prerelease.is_none())
}

fn by_identifiers(a: &[u8], b: &[u8]) -> Ordering {
    let (mut a, mut b) = (a.split(|b| *b == b'.'), b.split(|b| *b == b'.'));
    loop {
        let order = match (a.next(), b.next()) {
            (None, None) => return Ordering::Equal,
            (None, Some(_)) => return Ordering::Less,
            (Some(_), None) => return Ordering::Greater,
            (Some(a), Some(b)) => match (is_number(a), is_number(b)) {
                (true, true) => by_magnitude(a, b),
                (true, false) => Ordering::Less,
                (false, true) => Ordering::Greater,
                (false, false) => a.cmp(b),
            },
        };
        if order != Ordering::Equal {
            return order;
        }
    }
}

/// True if a prerelease has a number of more than [`PYTHON_INT_DIGITS`] digits.
fn has_long_number(prerelease: &[u8]) -> bool {
    prerelease.len() > PYTHON_INT_DIGITS
        && prerelease.split(|b| *b == b'.').any(|i| i.len() > PYTHON_INT_DIGITS && i.iter().all(u8::is_ascii_digit))
}

fn split_at_byte(text: &[u8], byte: u8) -> (&[u8], Option<&[u8]>) {
    let mut parts = text.splitn(2, |b| *b == byte);
    (parts.next().unwrap_or_default(), parts.next())
}

fn is_number(text: &[u8]) -> bool {
    matches!(text, [b'0'] | [b'1'..=b'9', ..]) && text.iter().all(u8::is_ascii_digit)
}

fn is_identifier(text: &[u8]) -> bool {
    !text.is_empty() && text.iter().all(|b| b.is_ascii_alphanumeric() || *b == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_ordered_by_semver_precedence() {
        let ordered = [
            "0.0.1",
            "1.0.0-alpha",
            "1.0.0-alpha.1",
            "1.0.0-alpha.beta",
            "1.0.0-beta",
            "1.0.0-beta.2",
            "1.0.0-beta.11",
            "1.0.0-rc.1",
            "1.0.0",
            "2.0.0",
            "10.0.0",
            "99999999999999999999999.0.0",
        ];
        for (i, a) in ordered.iter().enumerate() {
            for (j, b) in ordered.iter().enumerate() {
                let (a, b) = (Version::parse(a.as_bytes()).unwrap(), Version::parse(b.as_bytes()).unwrap());
                assert_eq!(a.precedence(&b), Some(i.cmp(&j)));
                assert_eq!(compare(ordered[i].as_bytes(), ordered[j].as_bytes()), Some(i.cmp(&j)));
                if let Some(packed) = pack(ordered[j].as_bytes()) {
                    assert_eq!(position(&a).cmp(&unpack(packed)), i.cmp(&j));
                }
            }
        }
        let (a, b) = (Version::parse(b"1.0.0+a").unwrap(), Version::parse(b"1.0.0+b-2").unwrap());
        assert_eq!(a.precedence(&b), Some(Ordering::Equal));
    }

    #[test]
    fn number_that_python_cannot_convert_is_in_no_relation() {
        let (fits, long) = ("9".repeat(4300), "9".repeat(4301));
        for version in [format!("{fits}.0.0"), format!("0.{fits}.0"), format!("0.0.{fits}")] {
            assert!(compare(b"0.0.1", version.as_bytes()).is_some_and(Ordering::is_lt));
            let version = version.replace(&fits, &long);
            assert_eq!(Version::parse(version.as_bytes()), None);
            assert_eq!(pack(version.as_bytes()), None);
        }
        // The digits of build metadata, and of identifiers with letters, are no numbers.
        for (left, right, order) in [
            (format!("1.0.0-{fits}"), "1.0.0".to_owned(), Some(Ordering::Less)),
            (format!("1.0.0-{long}"), "1.0.0".to_owned(), None),
            (format!("1.0.0-a.{long}"), "1.0.0-b".to_owned(), None),
            (format!("1.0.0-{long}"), "1.0.1".to_owned(), Some(Ordering::Less)),
            (format!("1.0.0-{long}a"), "1.0.0".to_owned(), Some(Ordering::Less)),
            (format!("1.0.0+{long}"), "1.0.0".to_owned(), Some(Ordering::Equal)),
        ] {
            assert_eq!(compare(left.as_bytes(), right.as_bytes()), order);
            assert_eq!(compare(right.as_bytes(), left.as_bytes()), order.map(Ordering::reverse));
        }
    }

    #[test]
    fn version_that_is_not_strict_is_not_read() {
        for text in [
            "",
            "1",
            "1.2",
            "1.2.3.4",
            "v1.2.3",
            "01.2.3",
            "1.2.3-",
            "1.2.3-01",
            "1.2.3-a..b",
            "1.2.3+",
            "1.2.3-é",
            " 1.2.3",
            "1.2.x",
            "1.2.3\n\n",
            "1.2.3\r\n",
        ] {
            assert_eq!(Version::parse(text.as_bytes()), None, "{text:?}");
            assert_eq!(pack(text.as_bytes()), None, "{text:?}");
        }
        assert!(Version::parse(b"1.2.3-0a.0+001").is_some());
        assert_eq!(Version::parse(b"1.2.3-a\n"), Version::parse(b"1.2.3-a"));
        assert_eq!(pack(b"1.2097151.3").map(unpack), Some(([1, 2_097_151, 3], true)));
        for text in ["1.2097152.3", "1.2.3-a", "1.2.3+a", "1.2.1000000000", "1.2.00", "0.00.1"] {
            assert_eq!(pack(text.as_bytes()), None, "{text:?}");
        }
    }
}
