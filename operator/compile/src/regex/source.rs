//! The text of a pattern, read character by character, and the flags that apply to it.

/// Flags that `(?aims)` changes.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Flags {
    pub(super) ascii: bool,
    pub(super) ignore_case: bool,
    pub(super) multi_line: bool,
    pub(super) dot_all: bool,
    pub(super) verbose: bool,
}

/// Remaining characters of the pattern.
#[derive(Clone)]
pub(super) struct Source<'a>(pub(super) std::str::Chars<'a>);

impl Source<'_> {
    pub(super) fn next(&mut self) -> Option<char> {
        self.0.next()
    }

    pub(super) fn peek(&self) -> Option<char> {
        self.0.clone().next()
    }

    pub(super) fn next_if(&mut self, holds: impl Fn(char) -> bool) -> Option<char> {
        self.peek().filter(|c| holds(*c)).inspect(|_| {
            self.0.next();
        })
    }

    pub(super) fn take(&mut self, text: &str) -> bool {
        match self.0.as_str().strip_prefix(text) {
            Some(rest) => {
                self.0 = rest.chars();
                true
            }
            None => false,
        }
    }

    /// Skips up to a character, and the character. A backslash and the character after it are one, as in Python's
    /// tokenizer. Returns false if the pattern ends before.
    ///
    /// # Errors
    /// The pattern ends in a backslash.
    pub(super) fn skip_past(&mut self, end: char) -> Result<bool, String> {
        while let Some(c) = self.next() {
            if c == end {
                return Ok(true);
            }
            if c == '\\' {
                self.next().ok_or("ends in a backslash")?;
            }
        }
        Ok(false)
    }

    /// Skips comments in groups, and in a verbose pattern also white space and comments of a line.
    ///
    /// # Errors
    /// A comment is not closed, or the pattern ends in a backslash.
    pub(super) fn skip_comments(&mut self, verbose: bool) -> Result<(), String> {
        loop {
            if self.take("(?#") {
                self.skip_group_comment()?;
            } else if verbose && self.take("#") {
                self.skip_past('\n')?;
            } else if !verbose || self.next_if(is_blank).is_none() {
                return Ok(());
            }
        }
    }

    /// Skips a comment in a group after `(?#`.
    ///
    /// # Errors
    /// The comment is not closed.
    pub(super) fn skip_group_comment(&mut self) -> Result<(), String> {
        if self.skip_past(')')? { Ok(()) } else { Err("has a comment (?# that is not closed".to_owned()) }
    }

    /// Reads up to `most` digits.
    pub(super) fn digits(&mut self, radix: u32, most: usize) -> String {
        let mut digits = String::new();
        while digits.len() < most {
            let Some(digit) = self.next_if(|c| c.is_digit(radix)) else { break };
            digits.push(digit);
        }
        digits
    }

    /// Reads up to a character, which is consumed but not returned.
    ///
    /// # Errors
    /// The character does not follow.
    pub(super) fn until(&mut self, end: char) -> Result<String, String> {
        let (before, behind) = self.0.as_str().split_once(end).ok_or_else(|| format!("lacks a {end} behind a name"))?;
        let before = before.to_owned();
        self.0 = behind.chars();
        Ok(before)
    }
}

/// True for the white space that a verbose pattern ignores.
pub(super) fn is_blank(c: char) -> bool {
    c.is_ascii_whitespace() || c == '\u{b}'
}
