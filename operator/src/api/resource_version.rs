//! Order of resource versions. Pure.

/// True if `version` is an earlier resource version than `other` of the same kind of object. Kubernetes compares them as
/// whole numbers of any size. Returns false if one of them is no such number.
#[must_use]
pub fn is_older(version: &str, other: &str) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let [first, second] = [version, other].map(|text| text.trim_start_matches('0'));
    is_number(version) && is_number(other) && (first.len(), first) < (second.len(), second)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_as_numbers_of_any_size() {
        let large = "123456789012345678901234567890";
        for (version, other, expected) in [
            ("9", "10", true),
            ("10", "9", false),
            ("10", "10", false),
            ("007", "8", true),
            ("08", "8", false),
            ("0", "1", true),
            (large, "123456789012345678901234567891", true),
            ("18446744073709551616", large, true),
            (large, "9", false),
        ] {
            assert_eq!(is_older(version, other), expected, "{version} {other}");
        }
    }

    #[test]
    fn versions_that_are_no_numbers_have_no_order() {
        for (version, other) in [("", "1"), ("1", ""), ("a", "b"), ("1", "b"), ("-1", "1"), ("1.0", "2")] {
            assert!(!is_older(version, other), "{version} {other}");
        }
    }
}
