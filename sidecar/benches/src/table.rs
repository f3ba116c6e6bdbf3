//! The table that is printed.

use std::io::Write;

/// What has to be reached.
#[derive(Debug, Clone, Copy)]
pub enum Target {
    /// At least this.
    AtLeast(f64),
    /// Below this.
    Below(f64),
    /// Within this part of one.
    Near(f64),
    /// Nothing: it is told beside something else.
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

/// The lines so far. Each is printed when it is known, as all of them take minutes.
pub struct Table<W> {
    out: W,
    short: Vec<String>,
}

impl<W: Write> Table<W> {
    /// Begins with its head.
    ///
    /// # Errors
    /// If it cannot be printed.
    pub fn new(mut out: W) -> anyhow::Result<Self> {
        writeln!(out, "{:<58} {:>12} {:>12}  {:<16} {:<6} beside", "what", "target", "measured", "spread", "")?;
        Ok(Self { out, short: Vec::new() })
    }

    /// Adds a line.
    ///
    /// # Errors
    /// If it cannot be printed.
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

    /// A line of words.
    ///
    /// # Errors
    /// If it cannot be printed.
    pub fn note(&mut self, text: &str) -> anyhow::Result<()> {
        writeln!(self.out, "{text}")?;
        self.out.flush()?;
        Ok(())
    }

    /// What fell short.
    #[must_use]
    pub fn short(&self) -> &[String] {
        &self.short
    }
}
