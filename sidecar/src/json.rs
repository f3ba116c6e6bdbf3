//! A reader for the small JSON body of a request: one pass, no tree, no allocation.
//!
//! The reader returns slices of the body. It decodes a string only when the caller asks for its characters, into a
//! buffer of the caller. Skipping counts brackets instead of recursing, and the depth is limited. Members may repeat;
//! the caller decides which one counts.

pub(crate) mod fast;
pub(crate) mod number;
mod text;

#[cfg(test)]
mod tests;

use std::fmt;

use number::Float;
use remora_snapshot::PYTHON_INT_DIGITS;
use text::plain;
pub(crate) use text::{Text, write_string, write_text};

/// Deepest nesting that the reader accepts. The contexts of flags are flat, so any finite limit would do.
const MAX_DEPTH: usize = 64;

/// Reason why a body is not JSON, and its position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Malformed {
    /// Offset in the body in bytes.
    pub(crate) at: usize,
    /// The problem, or the expected syntax.
    pub(crate) problem: &'static str,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at byte {}", self.problem, self.at)
    }
}

/// A JSON value. The content of lists and objects is skipped.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Value<'a> {
    /// `null`
    Null,
    /// `true` or `false`
    Bool(bool),
    /// A number without fraction and exponent, of any size.
    Integer(&'a str),
    /// A finite number with a fraction or an exponent.
    Float(Float<'a>),
    /// A string.
    String(Text<'a>),
    /// A list, whose content is skipped.
    Array,
    /// An object, whose content is skipped.
    Object,
}

/// A position in the body. A clone keeps the position for later.
#[derive(Debug, Clone)]
pub(crate) struct Reader<'a> {
    text: &'a str,
    at: usize,
}

/// A list or an object that is being read.
#[derive(Debug)]
pub(crate) struct Group {
    first: bool,
}

impl<'a> Reader<'a> {
    /// Creates a reader. The whole body must be UTF-8, and start with JSON (no byte order mark).
    pub(crate) fn new(body: &'a [u8]) -> Result<Reader<'a>, Malformed> {
        match std::str::from_utf8(body) {
            Ok(text) => Ok(Reader { text, at: 0 }),
            Err(error) => Err(Malformed { at: error.valid_up_to(), problem: "bytes that are not UTF-8" }),
        }
    }

    fn fail<T>(&self, problem: &'static str) -> Result<T, Malformed> {
        Err(Malformed { at: self.at, problem })
    }

    fn byte(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn rest(&self) -> &'a [u8] {
        self.text.as_bytes().get(self.at..).unwrap_or_default()
    }

    /// Skips white space, and returns the next byte without consuming it.
    pub(crate) fn peek(&mut self) -> Option<u8> {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.byte() {
            self.at += 1;
        }
        self.byte()
    }

    /// Consumes an opening `{`, if the next value is an object.
    pub(crate) fn enter_object(&mut self) -> Option<Group> {
        self.enter(b'{')
    }

    /// Consumes an opening `[`, if the next value is a list.
    pub(crate) fn enter_array(&mut self) -> Option<Group> {
        self.enter(b'[')
    }

    fn enter(&mut self, bracket: u8) -> Option<Group> {
        (self.peek() == Some(bracket)).then(|| {
            self.at += 1;
            Group { first: true }
        })
    }

    /// Moves to the next item of a list. False at the end of the list.
    pub(crate) fn next_item(&mut self, group: &mut Group) -> Result<bool, Malformed> {
        match (self.peek(), std::mem::take(&mut group.first)) {
            (Some(b']'), _) => self.at += 1,
            (Some(b','), false) => {
                self.at += 1;
                return Ok(true);
            }
            (Some(_), true) => return Ok(true),
            _ => return self.fail("expected ',' or ']'"),
        }
        Ok(false)
    }

    /// Moves to the value of the next member of an object, and returns its name. `None` at the end of the object.
    pub(crate) fn next_member(&mut self, group: &mut Group) -> Result<Option<Text<'a>>, Malformed> {
        match (self.peek(), std::mem::take(&mut group.first)) {
            (Some(b'}'), _) => {
                self.at += 1;
                return Ok(None);
            }
            (Some(b','), false) => self.at += 1,
            (_, true) => {}
            _ => return self.fail("expected ',' or '}'"),
        }
        if self.peek() != Some(b'"') {
            return self.fail("expected a member's name in double quotes");
        }
        let name = self.string()?;
        if self.peek() != Some(b':') {
            return self.fail("expected ':'");
        }
        self.at += 1;
        Ok(Some(name))
    }

    /// Reads any value. The content of a list or an object is checked and skipped.
    pub(crate) fn value(&mut self) -> Result<Value<'a>, Malformed> {
        match self.peek() {
            Some(b'[') => self.skip_nested().map(|()| Value::Array),
            Some(b'{') => self.skip_nested().map(|()| Value::Object),
            _ => self.scalar(),
        }
    }

    /// Checks that only white space follows.
    pub(crate) fn finish(&mut self) -> Result<(), Malformed> {
        match self.peek() {
            None => Ok(()),
            Some(_) => self.fail("expected the end of the body"),
        }
    }

    fn scalar(&mut self) -> Result<Value<'a>, Malformed> {
        match self.peek() {
            Some(b'"') => self.string().map(Value::String),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b'n') => self.word(b"null", Value::Null),
            Some(b't') => self.word(b"true", Value::Bool(true)),
            Some(b'f') => self.word(b"false", Value::Bool(false)),
            _ => self.fail("expected a value"),
        }
    }

    fn word(&mut self, word: &'static [u8], value: Value<'a>) -> Result<Value<'a>, Malformed> {
        if !self.rest().starts_with(word) {
            return self.fail("expected a value");
        }
        self.at += word.len();
        Ok(value)
    }

    /// Checks and skips a list or an object. Each open bracket has one bit, which is set for an object.
    fn skip_nested(&mut self) -> Result<(), Malformed> {
        let mut objects = 0u64;
        let mut depth = 0usize;
        loop {
            let opens = match self.peek() {
                Some(b'{') => Some(true),
                Some(b'[') => Some(false),
                _ => None,
            };
            let mut group = Group { first: false };
            if let Some(object) = opens {
                if depth == MAX_DEPTH {
                    return self.fail("nested deeper than 64 lists and objects");
                }
                self.at += 1;
                depth += 1;
                objects = objects << 1 | u64::from(object);
                group.first = true;
            } else {
                self.scalar()?;
            }
            // Moves to the next value, out of all brackets that close here.
            loop {
                if depth == 0 {
                    return Ok(());
                }
                let more = if objects & 1 == 1 {
                    self.next_member(&mut group)?.is_some()
                } else {
                    self.next_item(&mut group)?
                };
                if more {
                    break;
                }
                depth -= 1;
                objects >>= 1;
                group.first = false;
            }
        }
    }

    #[inline(always)]
    fn string(&mut self) -> Result<Text<'a>, Malformed> {
        let start = self.at + 1;
        let end = start + plain(self.text.as_bytes().get(start..).unwrap_or_default());
        match self.text.as_bytes().get(end) {
            Some(b'"') => {
                self.at = end + 1;
                Ok(Text { raw: self.text.get(start..end).unwrap_or_default(), escaped: false })
            }
            _ => self.escaped_string(start),
        }
    }

    #[cold]
    fn escaped_string(&mut self, start: usize) -> Result<Text<'a>, Malformed> {
        let mut escaped = false;
        self.at = start;
        loop {
            self.at += plain(self.rest());
            match self.byte() {
                Some(b'"') => {
                    let raw = self.text.get(start..self.at).unwrap_or_default();
                    self.at += 1;
                    return Ok(Text { raw, escaped });
                }
                Some(b'\\') => {
                    escaped = true;
                    self.escape()?;
                }
                Some(_) => return self.fail("a control character in a string: write it as an escape"),
                None => return self.fail("a string without its closing quote"),
            }
        }
    }

    fn escape(&mut self) -> Result<(), Malformed> {
        match self.rest().get(1) {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => self.at += 2,
            Some(b'u') => {
                let unit = self.hexadecimal()?;
                if (0xdc00..0xe000).contains(&unit) {
                    return self.fail("a low surrogate without a high one before it");
                }
                self.at += 6;
                if (0xd800..0xdc00).contains(&unit) {
                    let low = if self.rest().starts_with(b"\\u") { self.hexadecimal()? } else { 0 };
                    if !(0xdc00..0xe000).contains(&low) {
                        return self.fail("a high surrogate without a low one after it");
                    }
                    self.at += 6;
                }
            }
            _ => return self.fail("an escape that JSON does not have"),
        }
        Ok(())
    }

    /// Returns the code unit of the `\uXXXX` at the current position.
    fn hexadecimal(&self) -> Result<u32, Malformed> {
        match self.rest().get(2..6) {
            Some(digits) if digits.iter().all(u8::is_ascii_hexdigit) => {
                Ok(digits.iter().fold(0, |unit, &digit| unit << 4 | char::from(digit).to_digit(16).unwrap_or_default()))
            }
            _ => self.fail("expected four hexadecimal digits in an escape"),
        }
    }

    fn number(&mut self) -> Result<Value<'a>, Malformed> {
        let start = self.at;
        let mut float = false;
        if self.byte() == Some(b'-') {
            self.at += 1;
        }
        if self.byte() == Some(b'0') {
            self.at += 1;
        } else {
            self.digits()?;
        }
        if self.byte() == Some(b'.') {
            float = true;
            self.at += 1;
            self.digits()?;
        }
        if let Some(b'e' | b'E') = self.byte() {
            float = true;
            self.at += 1;
            if let Some(b'+' | b'-') = self.byte() {
                self.at += 1;
            }
            self.digits()?;
        }
        let token = self.text.get(start..self.at).unwrap_or_default();
        // Python, whose rules the reader follows, refuses integers of more digits.
        if token.len() > PYTHON_INT_DIGITS {
            self.at = start;
            return self.fail("a number of more than 4300 characters");
        }
        if !float {
            // JSON integers have no negative zero. Python reads `-0` as zero, and echoes `0`.
            return Ok(Value::Integer(if token == "-0" { "0" } else { token }));
        }
        if !Float::of(token).value().is_finite() {
            self.at = start;
            return self.fail("a number beyond the range of a double");
        }
        Ok(Value::Float(Float::of(token)))
    }

    fn digits(&mut self) -> Result<(), Malformed> {
        let count = self.rest().iter().take_while(|byte| byte.is_ascii_digit()).count();
        if count == 0 {
            return self.fail("expected a digit");
        }
        self.at += count;
        Ok(())
    }
}
