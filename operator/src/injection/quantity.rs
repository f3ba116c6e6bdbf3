//! Parses amounts of CPU and memory in Kubernetes' notation.
//!
//! Two grammars exist: a strict one for Remora's annotations, and the full one of Kubernetes for the other containers
//! of the pod. The API server validates those after the webhook, so the webhook only reads them and never refuses them.

use std::{fmt, str::FromStr};

/// An amount as written, with its value in thousandths (of a core or of a byte) for comparison.
#[derive(Clone, Debug)]
pub(crate) struct Quantity {
    text: String,
    milli: u128,
}

impl Quantity {
    /// Returns the value in thousandths.
    pub(crate) fn milli(&self) -> u128 {
        self.milli
    }

    /// True if both have the same value, even if they are written differently.
    pub(super) fn equals(&self, other: &Quantity) -> bool {
        self.milli == other.milli
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

/// Error: the text is not an amount, or its value exceeds 128 bits.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a quantity")]
pub(crate) struct NotAQuantity;

impl FromStr for Quantity {
    type Err = NotAQuantity;

    /// Parses the non-negative amounts that the API server accepts: digits with a fraction, and a binary, decimal or
    /// exponent suffix. Fractions of a thousandth are rounded up, as in the API server.
    fn from_str(text: &str) -> Result<Self, NotAQuantity> {
        let unsigned = text.strip_prefix('+').unwrap_or(text);
        let end = unsigned.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(unsigned.len());
        let (number, suffix) = unsigned.split_at(end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if whole.is_empty() && fraction.is_empty() || fraction.contains('.') {
            return Err(NotAQuantity);
        }
        let (factor, divisor) = scale(suffix).ok_or(NotAQuantity)?;

        let digits = format!("{whole}{fraction}");
        let digits = digits.trim_start_matches('0');
        let digits = if digits.is_empty() { "0" } else { digits };
        let mantissa: u128 = digits.parse().map_err(|_| NotAQuantity)?;
        let places = u32::try_from(fraction.len()).map_err(|_| NotAQuantity)?;
        let divisor = 10u128.checked_pow(places).and_then(|tens| tens.checked_mul(divisor)).ok_or(NotAQuantity)?;
        let milli = mantissa
            .checked_mul(factor)
            .and_then(|scaled| scaled.checked_mul(1000))
            .ok_or(NotAQuantity)?
            .div_ceil(divisor);
        Ok(Quantity { text: text.to_owned(), milli })
    }
}

/// Returns the multiplier and the divisor of a suffix.
fn scale(suffix: &str) -> Option<(u128, u128)> {
    let thousand = |power: u32| 1000u128.checked_pow(power);
    let factor = match suffix {
        "" => 1,
        "k" => thousand(1)?,
        "M" => thousand(2)?,
        "G" => thousand(3)?,
        "T" => thousand(4)?,
        "P" => thousand(5)?,
        "E" => thousand(6)?,
        "Ki" => 1 << 10,
        "Mi" => 1 << 20,
        "Gi" => 1 << 30,
        "Ti" => 1 << 40,
        "Pi" => 1 << 50,
        "Ei" => 1 << 60,
        "m" => return Some((1, 1000)),
        "u" => return Some((1, 1_000_000)),
        "n" => return Some((1, 1_000_000_000)),
        _ => {
            let exponent: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
            let power = 10u128.checked_pow(exponent.unsigned_abs())?;
            return Some(if exponent < 0 { (1, power) } else { (power, 1) });
        }
    };
    Some((factor, 1))
}

/// The grammar of amounts in annotations: up to 15 digits, at most three decimal places, and one of the suffixes. Signs
/// and exponents are not allowed.
#[derive(Debug)]
pub(super) struct Grammar {
    pub(super) suffixes: &'static [&'static str],
    pub(super) least: &'static str,
    pub(super) most: &'static str,
}

/// Grammar of CPU amounts, such as `250m`, `0.5` or `2`.
pub(super) const CPU: Grammar = Grammar { suffixes: &["", THOUSANDTHS], least: "1m", most: "1024" };

/// Grammar of memory amounts, such as `32Mi`, `1.5Gi` or `64M`.
pub(super) const MEMORY: Grammar =
    Grammar { suffixes: &["", "k", "M", "G", "T", "Ki", "Mi", "Gi", "Ti"], least: "4Mi", most: "1Ti" };

/// Suffix of thousandths, the smallest unit. Amounts with it have no fraction.
pub(super) const THOUSANDTHS: &str = "m";

/// Largest number of digits before and after the decimal point.
pub(super) const DIGITS: (usize, usize) = (15, 3);

impl Grammar {
    pub(super) fn read(&self, text: &str) -> Option<Quantity> {
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, suffix) = text.split_at(end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
        let shaped = (1..=DIGITS.0).contains(&whole.len()) && (1..=DIGITS.1).contains(&fraction.len());
        let divided = suffix == THOUSANDTHS && number.contains('.');
        let read = |text: &str| text.parse::<Quantity>().ok();
        let amount = (shaped && !divided && self.suffixes.contains(&suffix)).then(|| read(text)).flatten()?;
        (read(self.least)?.milli..=read(self.most)?.milli).contains(&amount.milli).then_some(amount)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn milli(text: &str) -> Option<u128> {
        text.parse::<Quantity>().ok().map(|quantity| quantity.milli())
    }

    #[test]
    fn quantities_of_kubernetes_are_parsed() {
        assert_eq!(milli("0"), Some(0));
        assert_eq!(milli("100m"), Some(100));
        assert_eq!(milli("0.1"), Some(100));
        assert_eq!(milli(".5"), Some(500));
        assert_eq!(milli("2."), Some(2000));
        assert_eq!(milli("+1"), Some(1000));
        assert_eq!(milli("1e3"), Some(1_000_000));
        assert_eq!(milli("1E-3"), Some(1));
        assert_eq!(milli("1E"), Some(1_000_000_000_000_000_000_000));
        assert_eq!(milli("1Ki"), Some(1_024_000));
        assert_eq!(milli("1n"), Some(1), "fractions of a thousandth are rounded up");
    }

    #[test]
    fn other_texts_are_refused() {
        for text in ["", ".", "m", "-1", "1..2", "1.2.3", "1 Mi", "1mi", "1e", "1e999", "0x10", "１", "1Ki\n"] {
            assert_eq!(milli(text), None, "{text:?}");
        }
        assert_eq!(milli(&"9".repeat(60)), None);
        assert_eq!(milli(&format!("0.{}", "1".repeat(60))), None);
    }

    #[test]
    fn annotation_grammar_refuses_signs_and_exponents() {
        for text in ["1m", "0.5", "1024"] {
            assert!(CPU.read(text).is_some(), "{text:?}");
        }
        for text in ["0", "0m", "1025", "0.5m", "0.5m1", "1e3", "+1", "1k", ".5", "1.", "0.0001"] {
            assert!(CPU.read(text).is_none(), "{text:?}");
        }
        for text in ["32Mi", "1.5Gi", "4194304"] {
            assert!(MEMORY.read(text).is_some(), "{text:?}");
        }
        for text in ["64", "1Mi", "2Ti", "32m", "32mi", "32MB", "-32Mi", "32 Mi", "1e9Gi", ""] {
            assert!(MEMORY.read(text).is_none(), "{text:?}");
        }
    }
}
