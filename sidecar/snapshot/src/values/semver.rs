//! Semantic versions: strict SemVer 2, compared by precedence, which ignores build metadata.

use std::cmp::Ordering;

use crate::values::number::by_magnitude;

/// The parts of a version. Numbers are digits, because SemVer has no largest number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Version<'a> {
    numbers: [&'a [u8]; 3],
    /// Text after `-`, if any.
    pub prerelease: Option<&'a [u8]>,
    /// Text after `+`, if any.
    pub build: Option<&'a [u8]>,
}

impl<'a> Version<'a> {
    /// Reads `MAJOR.MINOR.PATCH[-PRERELEASE][+BUILD]`. Leading zeros in numbers and a leading `v` are errors. One line end
    /// after the version is not a part of it, as for Flagsmith's API, which reads versions by `semver` 3.0.
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
            && version.numbers.iter().all(|n| is_number(n))
            && identifiers_hold(prerelease, |i| {
                is_identifier(i) && (is_number(i) || !i.iter().all(u8::is_ascii_digit))
            })
            && identifiers_hold(build, is_identifier))
        .then_some(version)
    }

    /// Compares by precedence (SemVer 2, section 11).
    #[must_use]
    pub fn precedence(&self, other: &Self) -> Ordering {
        for (a, b) in self.numbers.iter().zip(other.numbers) {
            let order = by_magnitude(a, b);
            if order != Ordering::Equal {
                return order;
            }
        }
        match (self.prerelease, other.prerelease) {
            (None, None) => Ordering::Equal,
            (None, Some(_)) => Ordering::Greater,
            (Some(_), None) => Ordering::Less,
            (Some(a), Some(b)) => by_identifiers(a, b),
        }
    }
}

/// Compares two versions. `None` unless both texts are versions.
#[must_use]
pub fn compare(left: &[u8], right: &[u8]) -> Option<Ordering> {
    Some(Version::parse(left)?.precedence(&Version::parse(right)?))
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

/// Returns the position of a version. Numbers beyond 64 bits become the largest number, which is above all packed ones.
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
                assert_eq!(a.precedence(&b), i.cmp(&j));
                assert_eq!(compare(ordered[i].as_bytes(), ordered[j].as_bytes()), Some(i.cmp(&j)));
                if let Some(packed) = pack(ordered[j].as_bytes()) {
                    assert_eq!(position(&a).cmp(&unpack(packed)), i.cmp(&j));
                }
            }
        }
        let (a, b) = (Version::parse(b"1.0.0+a").unwrap(), Version::parse(b"1.0.0+b-2").unwrap());
        assert_eq!(a.precedence(&b), Ordering::Equal);
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
