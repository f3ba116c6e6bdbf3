//! Amounts of CPU and memory, as Kubernetes writes them.
//!
//! Two grammars: the strict one for our own annotations, and the whole of Kubernetes' for what other containers of the
//! pod have, which the API server has yet to judge and which must therefore only be understood, never refused.

use std::{fmt, str::FromStr};

/// An amount that somebody wrote, with its value in thousandths (of a core, of a byte) for comparison.
#[derive(Clone, Debug)]
pub(crate) struct Quantity {
    text: String,
    milli: u128,
}

impl Quantity {
    /// The value in thousandths.
    pub(crate) fn milli(&self) -> u128 {
        self.milli
    }

    /// Whether both are the same amount, however they are written.
    pub(super) fn equals(&self, other: &Quantity) -> bool {
        self.milli == other.milli
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

/// Not an amount, or none that fits.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a quantity")]
pub(crate) struct NotAQuantity;

impl FromStr for Quantity {
    type Err = NotAQuantity;

    /// Understands what the API server understands of amounts that are not negative: digits with a fraction, and a
    /// binary, decimal or exponent suffix. Fractions of a thousandth are rounded up, as there.
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

/// What a suffix multiplies by, and divides by.
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

/// Reads the amount of CPU of an annotation: `250m`, `0.5`, `2`; from `1m` to `1024`.
pub(super) fn cpu(text: &str) -> Option<Quantity> {
    let quantity = strict(text, &["", "m"])?;
    (1..=1024 * 1000).contains(&quantity.milli).then_some(quantity)
}

/// Reads the amount of memory of an annotation: `32Mi`, `1.5Gi`, `64M`; from `4Mi` to `1Ti`.
pub(super) fn memory(text: &str) -> Option<Quantity> {
    let quantity = strict(text, &["", "k", "M", "G", "T", "Ki", "Mi", "Gi", "Ti"])?;
    ((4 << 20) * 1000..=(1 << 40) * 1000).contains(&quantity.milli).then_some(quantity)
}

/// Plain digits, at most three places of fraction, one of the suffixes; no signs, no exponents.
fn strict(text: &str, suffixes: &[&str]) -> Option<Quantity> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let shaped = (1..=15).contains(&whole.len()) && (1..=3).contains(&fraction.len());
    (shaped && suffixes.contains(&suffix)).then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn milli(text: &str) -> Option<u128> {
        text.parse::<Quantity>().ok().map(|quantity| quantity.milli())
    }

    #[test]
    fn reads_what_kubernetes_reads() {
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
    fn refuses_the_rest_without_panic() {
        for text in ["", ".", "m", "-1", "1..2", "1.2.3", "1 Mi", "1mi", "1e", "1e999", "0x10", "１", "1Ki\n"] {
            assert_eq!(milli(text), None, "{text:?}");
        }
        assert_eq!(milli(&"9".repeat(60)), None);
        assert_eq!(milli(&format!("0.{}", "1".repeat(60))), None);
    }

    #[test]
    fn annotations_are_read_strictly() {
        assert!(cpu("1m").is_some() && cpu("0.5").is_some() && cpu("1024").is_some());
        for text in ["0", "0m", "1025", "0.5m1", "1e3", "+1", "1k", ".5", "1.", "0.0001"] {
            assert!(cpu(text).is_none(), "{text:?}");
        }
        assert!(memory("32Mi").is_some() && memory("1.5Gi").is_some() && memory("4194304").is_some());
        for text in ["64", "1Mi", "2Ti", "32m", "32mi", "32MB", "-32Mi", "32 Mi", "1e9Gi", ""] {
            assert!(memory(text).is_none(), "{text:?}");
        }
    }
}
