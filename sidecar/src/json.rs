//! A reader for the small JSON body of a request: one pass, no tree, no allocation.
//!
//! It hands out slices of the body. A string is only decoded when somebody asks for its characters,
//! and only into a buffer that the caller keeps. Depth is bounded, because skipping counts brackets
//! instead of recursing; members may repeat, and which of them counts is the caller's to say.

use std::fmt;

/// The deepest nesting that is read. Flag contexts are flat; this only has to be finite.
const MAX_DEPTH: usize = 64;

/// The longest number. Python, whose reading we share, refuses integers of more digits than this.
const MAX_NUMBER: usize = 4300;

/// Why the body is not JSON, and where.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Malformed {
    /// Bytes from the beginning of the body.
    pub(crate) at: usize,
    /// What was wrong, and what was expected.
    pub(crate) problem: &'static str,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at byte {}", self.problem, self.at)
    }
}

/// A string as it stands in the body, without its quotes. Its escapes are known to be valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Text<'a> {
    raw: &'a str,
    escaped: bool,
}

impl<'a> Text<'a> {
    /// The characters; `scratch` is only touched when there is an escape.
    pub(crate) fn decode<'s>(self, scratch: &'s mut String) -> &'s str
    where
        'a: 's,
    {
        if !self.escaped {
            return self.raw;
        }
        scratch.clear();
        self.decode_into(scratch);
        scratch
    }

    /// Appends the characters.
    pub(crate) fn decode_into(self, out: &mut String) {
        let mut rest = self.raw;
        while let Some((plain, after)) = rest.split_once('\\') {
            out.push_str(plain);
            let mut characters = after.chars();
            match characters.next() {
                Some('b') => out.push('\u{8}'),
                Some('f') => out.push('\u{c}'),
                Some('n') => out.push('\n'),
                Some('r') => out.push('\r'),
                Some('t') => out.push('\t'),
                Some('u') => {
                    let (unit, tail) = code_unit(characters.as_str());
                    characters = tail.chars();
                    if (0xd800..0xdc00).contains(&unit) {
                        // A low surrogate follows: the reader has seen to that.
                        let (low, tail) = code_unit(tail.strip_prefix("\\u").unwrap_or_default());
                        characters = tail.chars();
                        let scalar = 0x10000 + ((unit & 0x3ff) << 10) + (low & 0x3ff);
                        out.extend(char::from_u32(scalar));
                    } else {
                        out.extend(char::from_u32(unit));
                    }
                }
                Some(itself) => out.push(itself),
                None => {}
            }
            rest = characters.as_str();
        }
        out.push_str(rest);
    }

    /// The characters as they stand, if they stand there without escapes.
    pub(crate) fn plain(self) -> Option<&'a str> {
        (!self.escaped).then_some(self.raw)
    }

    /// Whether the characters are those of `name`.
    pub(crate) fn is(self, name: &str) -> bool {
        match self.plain() {
            Some(plain) => plain == name,
            None => self.decode(&mut String::new()) == name,
        }
    }

    /// Whether there are no characters.
    pub(crate) fn is_empty(self) -> bool {
        self.raw.is_empty()
    }

    /// Whether there are more than `limit` characters.
    pub(crate) fn is_longer_than(self, limit: usize, scratch: &mut String) -> bool {
        self.raw.len() > limit && self.decode(scratch).chars().count() > limit
    }
}

/// The value of the four hexadecimal digits in front, and what follows them.
fn code_unit(text: &str) -> (u32, &str) {
    let (digits, rest) = text.split_at_checked(4).unwrap_or((text, ""));
    (u32::from_str_radix(digits, 16).unwrap_or_default(), rest)
}

/// A number as it stands in the body.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Number<'a> {
    /// Without fraction and exponent, of any size.
    Integer(&'a str),
    /// With one of them; finite.
    Float(f64),
}

/// A value, as far as it is read: what is inside of lists and objects has been skipped.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Value<'a> {
    /// `null`
    Null,
    /// `true` or `false`
    Bool(bool),
    /// A number.
    Number(Number<'a>),
    /// A string.
    String(Text<'a>),
    /// A list, skipped.
    Array,
    /// An object, skipped.
    Object,
}

/// Where in the body we are. A clone is a bookmark.
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
    /// Begins to read. The whole body has to be UTF-8, and begin with JSON (no byte order mark).
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

    /// The next byte that is not white space.
    pub(crate) fn peek(&mut self) -> Option<u8> {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.byte() {
            self.at += 1;
        }
        self.byte()
    }

    /// Passes an opening `{`, if the next value is an object.
    pub(crate) fn enter_object(&mut self) -> Option<Group> {
        self.enter(b'{')
    }

    /// Passes an opening `[`, if the next value is a list.
    pub(crate) fn enter_array(&mut self) -> Option<Group> {
        self.enter(b'[')
    }

    fn enter(&mut self, bracket: u8) -> Option<Group> {
        (self.peek() == Some(bracket)).then(|| {
            self.at += 1;
            Group { first: true }
        })
    }

    /// Passes to the next item of a list; false at its end.
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

    /// Passes to the value of the next member of an object; none at its end.
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

    /// Reads any value; what is in a list or an object is checked and skipped.
    pub(crate) fn value(&mut self) -> Result<Value<'a>, Malformed> {
        match self.peek() {
            Some(b'[') => self.skip_nested().map(|()| Value::Array),
            Some(b'{') => self.skip_nested().map(|()| Value::Object),
            _ => self.scalar(),
        }
    }

    /// Nothing but white space may follow.
    pub(crate) fn finish(&mut self) -> Result<(), Malformed> {
        match self.peek() {
            None => Ok(()),
            Some(_) => self.fail("expected the end of the body"),
        }
    }

    fn scalar(&mut self) -> Result<Value<'a>, Malformed> {
        match self.peek() {
            Some(b'"') => self.string().map(Value::String),
            Some(b'-' | b'0'..=b'9') => self.number().map(Value::Number),
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

    /// Skips a list or an object, checking it. One bit for each open bracket tells which kind it is.
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
            // To the next value, out of as many brackets as close here.
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

    fn string(&mut self) -> Result<Text<'a>, Malformed> {
        let start = self.at + 1;
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

    /// The code unit of the `\uXXXX` at which we are.
    fn hexadecimal(&self) -> Result<u32, Malformed> {
        match self.rest().get(2..6) {
            Some(digits) if digits.iter().all(u8::is_ascii_hexdigit) => {
                Ok(digits.iter().fold(0, |unit, &digit| unit << 4 | char::from(digit).to_digit(16).unwrap_or_default()))
            }
            _ => self.fail("expected four hexadecimal digits after \\u"),
        }
    }

    fn number(&mut self) -> Result<Number<'a>, Malformed> {
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
        if token.len() > MAX_NUMBER {
            self.at = start;
            return self.fail("a number of more than 4300 characters");
        }
        if !float {
            // There is no integer minus zero; Python reads it as zero, and says so in its echo.
            return Ok(Number::Integer(if token == "-0" { "0" } else { token }));
        }
        match token.parse::<f64>() {
            Ok(value) if value.is_finite() => Ok(Number::Float(value)),
            _ => {
                self.at = start;
                self.fail("a number beyond the range of a double")
            }
        }
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

/// How many bytes there are before the first that a string cannot have as it is: a quote, a backslash, a control
/// character. Eight at a time, because this is where most of a body goes through.
fn plain(bytes: &[u8]) -> usize {
    const LOW: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = 0x8080_8080_8080_8080;
    // The usual tricks: the highest bit of the first byte that is below a value, or zero, is set; those of bytes
    // above it may be as well.
    let below = |word: u64, limit: u8| word.wrapping_sub(LOW * u64::from(limit)) & !word & HIGH;
    let equal = |word: u64, byte: u8| below(word ^ (LOW * u64::from(byte)), 1);
    let (words, rest) = bytes.as_chunks::<8>();
    for (index, word) in words.iter().enumerate() {
        let word = u64::from_le_bytes(*word);
        let found = below(word, 0x20) | equal(word, b'"') | equal(word, b'\\');
        if found != 0 {
            return index * 8 + found.trailing_zeros() as usize / 8;
        }
    }
    let special = |byte: &u8| *byte == b'"' || *byte == b'\\' || *byte < 0x20;
    words.len() * 8 + rest.iter().position(special).unwrap_or(rest.len())
}

/// Appends `text` as a JSON string: raw UTF-8, with the escapes that JSON demands and no others.
pub(crate) fn write_string(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    let mut rest = text.as_bytes();
    loop {
        let (plain, tail) = rest.split_at_checked(plain(rest)).unwrap_or((rest, &[]));
        out.extend_from_slice(plain);
        let Some((&byte, after)) = tail.split_first() else { break };
        match byte {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            0x8 => out.extend_from_slice(b"\\b"),
            0xc => out.extend_from_slice(b"\\f"),
            control => {
                let digit = |nibble: u8| if nibble < 10 { b'0' + nibble } else { b'a' + nibble - 10 };
                out.extend_from_slice(b"\\u00");
                out.push(digit(control >> 4));
                out.push(digit(control & 15));
            }
        }
        rest = after;
    }
    out.push(b'"');
}

/// Appends a string of the body again, in the form of [`write_string`].
pub(crate) fn write_text(text: Text<'_>, scratch: &mut String, out: &mut Vec<u8>) {
    match text.plain() {
        Some(plain) => {
            out.push(b'"');
            out.extend_from_slice(plain.as_bytes());
            out.push(b'"');
        }
        None => write_string(text.decode(scratch), out),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(body: &str) -> Result<Value<'_>, Malformed> {
        let mut reader = Reader::new(body.as_bytes())?;
        let value = reader.value()?;
        reader.finish()?;
        Ok(value)
    }

    fn decoded(body: &str) -> String {
        match value(body) {
            Ok(Value::String(text)) => text.decode(&mut String::new()).to_owned(),
            other => panic!("{body} gave {other:?}"),
        }
    }

    #[test]
    fn scalars() {
        assert_eq!(value(" null\n"), Ok(Value::Null));
        assert_eq!(value("true"), Ok(Value::Bool(true)));
        assert_eq!(value("-12"), Ok(Value::Number(Number::Integer("-12"))));
        assert_eq!(value("-0"), Ok(Value::Number(Number::Integer("0"))));
        assert_eq!(
            value("123456789012345678901234567890"),
            Ok(Value::Number(Number::Integer("123456789012345678901234567890")))
        );
        assert_eq!(value("2.0"), Ok(Value::Number(Number::Float(2.0))));
        assert_eq!(value("1E-2"), Ok(Value::Number(Number::Float(0.01))));
    }

    #[test]
    fn strings_are_decoded() {
        assert_eq!(decoded(r#""plain ö""#), "plain ö");
        assert_eq!(decoded(r#""\"\\\/\b\f\n\r\t\u00e9\u20ac\ud83d\ude00x""#), "\"\\/\u{8}\u{c}\n\r\té€😀x");
        assert_eq!(decoded(r#""\u0000""#), "\0");
    }

    #[test]
    fn strings_are_written_with_the_escapes_that_json_demands() {
        let mut out = Vec::new();
        write_string("a\"b\\c\n\r\t\u{8}\u{c}\u{1}\u{1f}\u{7f}/ö", &mut out);
        assert_eq!(String::from_utf8(out).unwrap(), "\"a\\\"b\\\\c\\n\\r\\t\\b\\f\\u0001\\u001f\u{7f}/ö\"");
    }

    #[test]
    fn plain_bytes_are_counted_one_by_one_and_eight_at_a_time() {
        for special in (0..=255u8).filter(|byte| *byte < 0x20 || b"\"\\".contains(byte)) {
            for other in [0x20, 0x21, 0x23, b'[', b']', 0x7f, 0x80, 0xff] {
                for at in 0..20 {
                    let mut bytes = [other; 20];
                    assert_eq!(plain(&bytes[..at]), at);
                    bytes[at] = special;
                    assert_eq!(plain(&bytes), at, "{special} among {other}");
                    bytes[at..].fill(special);
                    assert_eq!(plain(&bytes), at, "{special} after {other}");
                }
            }
        }
    }

    #[test]
    fn nested_values_are_checked_and_skipped() {
        assert_eq!(value(r#" [1, {"a": [], "b": {}}, [[["x"]]], null ] "#), Ok(Value::Array));
        assert_eq!(value(r#"{"a":{"b":[1,2,{"c":null}]},"a":1}"#), Ok(Value::Object));
        for bad in [
            "[1,]",
            "[,1]",
            "[1 2]",
            "{\"a\":1,}",
            "{,}",
            "{\"a\"}",
            "{\"a\":}",
            "{1:2}",
            "[1}",
            "{\"a\":1]",
            "[",
            "{",
            "[[]",
            "{\"a\":[}",
            "[1],",
        ] {
            assert!(value(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn depth_is_bounded() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert_eq!(value(&nested(64)), Ok(Value::Array));
        assert!(value(&nested(65)).is_err());
        assert!(value(&"[".repeat(1_000_000)).is_err());
        assert!(value(&"{\"a\":".repeat(100_000)).is_err());
    }

    #[test]
    fn what_is_not_json_is_refused_with_its_place() {
        for (body, at) in [
            ("", 0),
            ("nul", 0),
            ("NaN", 0),
            ("-Infinity", 1),
            ("01", 1),
            ("1.", 2),
            (".5", 0),
            ("+1", 0),
            ("1e", 2),
            ("1e400", 0),
            ("\"a", 2),
            ("\"\\x\"", 1),
            ("\"\\u12g4\"", 1),
            ("\"\\ud800\"", 7),
            ("\"\\ud800\\u0041\"", 7),
            ("\"\\udc00\"", 1),
            ("\"a\nb\"", 2),
            ("\u{feff}1", 0),
            ("1 2", 2),
        ] {
            assert_eq!(value(body).map_err(|problem| problem.at), Err(at), "{body:?}");
        }
        assert!(value(&"1".repeat(4301)).is_err());
        assert_eq!(Reader::new(b"\"\xff\"").map(|_| ()).map_err(|problem| problem.at), Err(1));
    }

    #[test]
    fn no_cut_of_a_body_is_taken_for_a_whole() {
        let body = r#"{"identifier":"ü\ud83d\ude00","traits":[{"trait_key":"k","trait_value":-1.5e3},true,null]}"#;
        assert_eq!(value(body), Ok(Value::Object));
        for (at, _) in body.char_indices() {
            assert!(value(&body[..at]).is_err(), "cut at {at}");
        }
    }

    /// Bodies that were damaged at random are judged, and read, as another reader does.
    #[test]
    fn damaged_bodies_are_judged_as_others_judge_them() {
        const SEED: &str = r#"{"identifier":"ü\ud83d\ude00\n","traits":[{"trait_key":"k","trait_value":-1.5e3},[0,10,{}],true,null,false,""]}"#;
        const SPLINTERS: &[&[u8]] = &[
            b"\"", b"\\", b"{", b"}", b"[", b"]", b",", b":", b"0", b"1", b"-", b".", b"e", b"+", b" ", b"\n", b"n",
            b"\xc3", b"u", b"\\u00e9", b"null",
        ];
        let mut state = 1u64;
        let mut random = move |limit: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % limit
        };
        let mut accepted = 0;
        for _ in 0..100_000 {
            let mut body = SEED.as_bytes().to_vec();
            for _ in 0..=random(3) {
                let at = random(body.len());
                let end = (at + random(4)).min(body.len());
                let splinter = SPLINTERS[random(SPLINTERS.len())];
                body.splice(at..end, splinter.iter().copied());
            }
            let theirs = serde_json::from_slice::<serde_json::Value>(&body).ok();
            let read = || {
                let mut reader = Reader::new(&body)?;
                let value = reader.value()?;
                reader.finish().map(|()| value)
            };
            let ours = read();
            assert_eq!(ours.is_ok(), theirs.is_some(), "{:?} {ours:?}", String::from_utf8_lossy(&body));
            if let (Ok(Value::String(text)), Some(serde_json::Value::String(other))) = (ours, &theirs) {
                assert_eq!(text.decode(&mut String::new()), other);
            }
            accepted += usize::from(theirs.is_some());
        }
        assert!(accepted > 1_000, "{accepted}");
    }
}
