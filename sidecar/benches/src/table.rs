//! The table of results.

use std::io::Write;

/// Target of a measured value.
#[derive(Debug, Clone, Copy)]
pub enum Target {
    /// At least this value.
    AtLeast(f64),
    /// Below this value.
    Below(f64),
    /// Within this distance of 1.
    Near(f64),
    /// No target: the value is printed for comparison.
    None,
}

impl Target {
    fn is_met(self, value: f64) -> bool {
        match self {
            Target::AtLeast(least) => value >= least,
            Target::Below(limit) => value < limit,
            Target::Near(part) => (value - 1.0).abs() <= part,
            Target::None => true,
        }
    }
}

/// A table that prints each line as soon as it is known, because all of them take minutes.
pub struct Table<W> {
    out: W,
    short: Vec<String>,
}

impl<W: Write> Table<W> {
    /// Creates a table, and prints its head.
    ///
    /// # Errors
    /// The output cannot be written.
    pub fn new(mut out: W) -> anyhow::Result<Self> {
        writeln!(out, "{:<58} {:>12} {:>12}  {:<16} {:<6} beside", "what", "target", "measured", "spread", "")?;
        Ok(Self { out, short: Vec::new() })
    }

    /// Prints a line.
    ///
    /// # Errors
    /// The output cannot be written.
    pub fn line(
        &mut self,
        what: &str,
        target: Target,
        unit: &str,
        value: f64,
        spread: &str,
        beside: &str,
    ) -> anyhow::Result<()> {
        let number = |value: f64| match value.abs() {
            size if unit.is_empty() => format!("{value:.3}{}", if size.is_nan() { "?" } else { "" }),
            size if size >= 100.0 => format!("{value:.0} {unit}"),
            size if size >= 10.0 => format!("{value:.1} {unit}"),
            _ => format!("{value:.2} {unit}"),
        };
        let wanted = match target {
            Target::AtLeast(least) => format!(">= {}", number(least)),
            Target::Below(limit) => format!("< {}", number(limit)),
            Target::Near(part) => format!("1 ± {part:.2}"),
            Target::None => "reported".to_owned(),
        };
        let verdict = match target {
            Target::None => "",
            _ if target.is_met(value) => "ok",
            _ => "short",
        };
        if verdict == "short" {
            self.short.push(what.to_owned());
        }
        writeln!(self.out, "{what:<58} {wanted:>12} {:>12}  {spread:<16} {verdict:<6} {beside}", number(value))?;
        self.out.flush()?;
        Ok(())
    }

    /// Prints a line of text.
    ///
    /// # Errors
    /// The output cannot be written.
    pub fn note(&mut self, text: &str) -> anyhow::Result<()> {
        writeln!(self.out, "{text}")?;
        self.out.flush()?;
        Ok(())
    }

    /// Lines that missed their target.
    #[must_use]
    pub fn short(&self) -> &[String] {
        &self.short
    }
}
