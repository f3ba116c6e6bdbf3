//! Answers: text with aligned columns and colours for people, JSON for programs.

use std::{
    fmt::{self, Write as _},
    io::{self, Write},
};

use remora_tools::terminal::{printable, printable_json};
use serde::Serialize;

/// Number of characters of a cell that a table shows. Every row is as wide as the widest one, and tenants decide how long
/// names are.
const CELL_MAX: usize = 1000;

/// Answer of a command.
pub(super) trait CommandOutput: Serialize {
    /// Writes the answer for people.
    fn text(&self, output: &mut TextOutput) -> fmt::Result;

    /// Returns 1 if the answer names something that needs attention, else 0.
    fn exit_code(&self) -> u8 {
        0
    }
}

/// Form in which answers are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutputFormat {
    /// True for JSON.
    pub json: bool,
    /// True if text may contain colours.
    pub colours: bool,
}

impl OutputFormat {
    /// Writes an answer.
    pub(super) fn write(self, answer: &impl CommandOutput, out: &mut impl Write) -> io::Result<()> {
        if self.json {
            return writeln!(out, "{}", printable_json(&serde_json::to_string_pretty(answer)?));
        }
        let mut output = TextOutput { text: String::new(), colours: self.colours };
        answer.text(&mut output).map_err(io::Error::other)?;
        out.write_all(output.text.as_bytes())
    }
}

/// Colour of a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Colour {
    Green,
    Yellow,
    Red,
    Grey,
}

impl Colour {
    fn code(self) -> u8 {
        match self {
            Self::Green => 32,
            Self::Yellow => 33,
            Self::Red => 31,
            Self::Grey => 90,
        }
    }
}

/// Text of an answer.
#[derive(Debug)]
pub(super) struct TextOutput {
    text: String,
    colours: bool,
}

impl TextOutput {
    /// Appends a line. Text of others in it cannot steer the terminal.
    pub(super) fn line(&mut self, line: impl fmt::Display) -> fmt::Result {
        writeln!(self.text, "{}", printable(&line.to_string()))
    }

    /// Appends a line with one word in a colour, if colours are wanted.
    pub(super) fn painted_line(
        &mut self,
        before: impl fmt::Display,
        (colour, word): (Colour, &str),
        after: impl fmt::Display,
    ) -> fmt::Result {
        let [before, word, after] =
            [before.to_string(), word.to_owned(), after.to_string()].map(|text| printable(&text));
        if self.colours {
            writeln!(self.text, "{before}\u{1b}[{}m{word}\u{1b}[0m{after}", colour.code())
        } else {
            writeln!(self.text, "{before}{word}{after}")
        }
    }

    /// Appends rows with aligned columns, without what a cell has beyond [`CELL_MAX`] characters. The first row is the
    /// head.
    pub(super) fn table(&mut self, rows: &[Vec<String>]) -> fmt::Result {
        let columns = rows.iter().map(Vec::len).max().unwrap_or_default();
        let length = |cell: &String| cell.chars().take(CELL_MAX).count();
        let width = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(length).max().unwrap_or_default();
        let widths: Vec<usize> = (0..columns).map(width).collect();
        for row in rows {
            let mut line = String::new();
            for (cell, width) in row.iter().zip(&widths) {
                line.extend(cell.chars().take(CELL_MAX));
                line.extend(std::iter::repeat_n(' ', width - length(cell) + 3));
            }
            self.line(line.trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Serialize)]
    struct Words(Vec<Vec<String>>);

    impl CommandOutput for Words {
        fn text(&self, output: &mut TextOutput) -> fmt::Result {
            output.table(&self.0)?;
            output.painted_line("", (Colour::Red, "red"), "")
        }
    }

    fn written(json: bool, colours: bool) -> String {
        let rows = [["NAME", "N"], ["über", "1"], ["a", "22"]];
        let words = Words(rows.iter().map(|row| row.iter().map(|cell| (*cell).to_owned()).collect()).collect());
        let mut out = Vec::new();
        OutputFormat { json, colours }.write(&words, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn columns_are_aligned_and_colours_are_optional() {
        assert_eq!(written(false, false), "NAME   N\nüber   1\na      22\nred\n");
        assert!(written(false, true).ends_with("\u{1b}[31mred\u{1b}[0m\n"));
        let json: serde_json::Value = serde_json::from_str(&written(true, true)).unwrap();
        assert_eq!(json[2][1], "22");
    }

    /// Tenants decide how long names are, and each row is as wide as the widest one.
    #[test]
    fn very_long_cell_is_cut() {
        let long = "ä".repeat(70_000);
        let words = Words([[long.as_str(), "1"], ["a", "2"]].map(|row| row.map(str::to_owned).to_vec()).to_vec());
        let mut out = Vec::new();
        OutputFormat { json: false, colours: false }.write(&words, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let rows: Vec<&str> = text.lines().collect();
        assert_eq!(rows[0], format!("{}   1", "ä".repeat(CELL_MAX)));
        assert_eq!(rows[1].chars().count(), CELL_MAX + 4);
    }

    #[test]
    fn text_of_others_cannot_steer_a_terminal() {
        #[derive(Serialize)]
        struct Hostile(&'static str);

        impl CommandOutput for Hostile {
            fn text(&self, output: &mut TextOutput) -> fmt::Result {
                output.line(self.0)?;
                output.painted_line(self.0, (Colour::Red, self.0), self.0)?;
                output.table(&[vec![self.0.to_owned()]])
            }
        }
        let hostile = Hostile("a\u{1b}[2J\u{9b}2J\u{202e}b\r\nc");
        let written = |json| {
            let mut out = Vec::new();
            OutputFormat { json, colours: false }.write(&hostile, &mut out).unwrap();
            String::from_utf8(out).unwrap()
        };
        for line in written(false).lines() {
            assert_eq!(line, printable(line));
        }
        assert_eq!(written(false).lines().count(), 3);
        assert_eq!(written(true).trim_end(), "\"a\\u001b[2J\\u009b2J\\u202eb\\r\\nc\"");
    }
}
