//! Strings that hold JSON objects, for environments that return them as objects.
//!
//! The appended object is part of an answer with other flags, so it must be valid JSON for the strictest client:
//! without lone surrogates, numbers beyond a double, or more nesting than parsers accept. Any other string stays a
//! string.

/// Maximum nesting of objects and lists.
const DEPTH: u32 = 64;

/// Appends the object that a JSON string holds, and returns true. Returns false and appends nothing if it holds none.
pub(super) fn append(token: &[u8], out: &mut Vec<u8>) -> bool {
    let Some(text) = token.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\"")) else { return false };
    // An object, or white space before it. Other texts are not examined further.
    if !matches!(text, [b'{' | b' ' | b'\\', ..]) {
        return false;
    }
    let start = out.len();
    let found = unescape(text, out).is_some() && out.get(start..).is_some_and(is_object);
    if !found {
        out.truncate(start);
    }
    found
}

/// Appends the unescaped content of a JSON string as `json::write_string` writes it. Not `json::decode`: the content goes
/// into the bytes of an answer without a copy in between, and an escaped control character ends the search at once.
fn unescape(mut text: &[u8], out: &mut Vec<u8>) -> Option<()> {
    while let Some(at) = text.iter().position(|&byte| byte == b'\\') {
        let (plain, escape) = text.split_at(at);
        out.extend_from_slice(plain);
        let (byte, rest) = match escape {
            [_, b'n', rest @ ..] => (b'\n', rest),
            [_, b'r', rest @ ..] => (b'\r', rest),
            [_, b't', rest @ ..] => (b'\t', rest),
            [_, byte @ (b'"' | b'\\' | b'/'), rest @ ..] => (*byte, rest),
            // The other escapes are control characters, which JSON does not allow.
            _ => return None,
        };
        out.push(byte);
        text = rest;
    }
    out.extend_from_slice(text);
    Some(())
}

fn is_object(text: &[u8]) -> bool {
    let mut scanner = Scanner { rest: text };
    scanner.space();
    scanner.rest.starts_with(b"{") && scanner.value(DEPTH).is_some() && {
        scanner.space();
        scanner.rest.is_empty()
    }
}

/// Scans JSON. `None` stands for invalid JSON.
struct Scanner<'a> {
    rest: &'a [u8],
}

impl Scanner<'_> {
    fn next(&mut self) -> Option<u8> {
        let (&byte, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(byte)
    }

    fn take(&mut self, wanted: u8) -> Option<()> {
        self.rest = self.rest.strip_prefix(&[wanted])?;
        Some(())
    }

    fn skip(&mut self, skipped: impl Fn(u8) -> bool) -> usize {
        let length = self.rest.iter().take_while(|&&byte| skipped(byte)).count();
        self.rest = self.rest.get(length..).unwrap_or_default();
        length
    }

    fn space(&mut self) {
        self.skip(|byte| b" \t\n\r".contains(&byte));
    }

    fn value(&mut self, room: u32) -> Option<()> {
        match self.rest.first()? {
            b'{' => self.group(b'}', room, |scanner, room| {
                scanner.string()?;
                scanner.space();
                scanner.take(b':')?;
                scanner.space();
                scanner.value(room)
            }),
            b'[' => self.group(b']', room, Scanner::value),
            b'"' => self.string(),
            b'-' | b'0'..=b'9' => self.number(),
            _ => {
                let word = [&b"true"[..], b"false", b"null"].into_iter().find(|word| self.rest.starts_with(word))?;
                self.rest = self.rest.get(word.len()..)?;
                Some(())
            }
        }
    }

    fn group(&mut self, end: u8, room: u32, item: impl Fn(&mut Self, u32) -> Option<()>) -> Option<()> {
        let room = room.checked_sub(1)?;
        self.next()?;
        self.space();
        if self.take(end).is_some() {
            return Some(());
        }
        loop {
            item(self, room)?;
            self.space();
            if self.take(end).is_some() {
                return Some(());
            }
            self.take(b',')?;
            self.space();
        }
    }

    fn string(&mut self) -> Option<()> {
        self.take(b'"')?;
        loop {
            self.skip(|byte| byte >= b' ' && byte != b'"' && byte != b'\\');
            match self.next()? {
                b'"' => return Some(()),
                b'\\' => self.escape()?,
                _ => return None,
            }
        }
    }

    fn escape(&mut self) -> Option<()> {
        match self.next()? {
            b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => Some(()),
            b'u' => match self.unit()? {
                // A high surrogate, which must be followed by a low surrogate.
                0xd800..=0xdbff => {
                    self.take(b'\\')?;
                    self.take(b'u')?;
                    (0xdc00..=0xdfff).contains(&self.unit()?).then_some(())
                }
                0xdc00..=0xdfff => None,
                _ => Some(()),
            },
            _ => None,
        }
    }

    /// Reads the four digits of `\u`.
    fn unit(&mut self) -> Option<u32> {
        (0..4).try_fold(0, |unit, _| Some(unit << 4 | char::from(self.next()?).to_digit(16)?))
    }

    fn number(&mut self) -> Option<()> {
        let text = self.rest;
        let _sign = self.take(b'-');
        let leading = self.rest.first() == Some(&b'0');
        let whole = self.digits()?;
        if leading && whole > 1 {
            return None;
        }
        if self.take(b'.').is_some() {
            self.digits()?;
        }
        if self.take(b'e').or_else(|| self.take(b'E')).is_some() {
            let _sign = self.take(b'-').or_else(|| self.take(b'+'));
            self.digits()?;
        }
        let number = std::str::from_utf8(text.get(..text.len() - self.rest.len())?).ok()?;
        number.parse::<f64>().ok().filter(|number| number.is_finite()).map(|_| ())
    }

    fn digits(&mut self) -> Option<usize> {
        Some(self.skip(|byte| byte.is_ascii_digit())).filter(|&digits| digits > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object_in(text: &str) -> Option<String> {
        let mut token = String::new();
        crate::values::json::write_string(text, &mut token);
        let mut out = b"before".to_vec();
        let found = append(token.as_bytes(), &mut out);
        let appended = String::from_utf8(out).unwrap().split_off("before".len());
        assert_eq!(found, !appended.is_empty());
        found.then_some(appended)
    }

    #[test]
    fn string_with_json_object_is_returned_as_object() {
        for text in [
            "{}",
            " {\r\n\t\"a\" : [ ] , \"b\":[1,{}] }\n",
            r#"{"perMinute": 120, "burst": {"size": 20}, "tiers": ["a", "b"]}"#,
            r#"{"numbers":[0,-0,10,-1.5,2e3,2E-3,1.25e+10,123456789012345678901234567890]}"#,
            r#"{"words":[true,false,null],"texts":["","ü🦈","\"\\\/\b\f\n\r\t\u00e9\ud83e\udd88"]}"#,
        ] {
            assert_eq!(object_in(text).as_deref(), Some(text));
        }
    }

    #[test]
    fn string_without_json_object_stays_string() {
        for text in [
            "",
            " ",
            "\\",
            "{",
            "}",
            "[]",
            "[{}]",
            "{}{}",
            "{} x",
            "{a:1}",
            "{'a':1}",
            r#"{"a"}"#,
            r#"{"a":}"#,
            r#"{"a":1,}"#,
            r#"{"a":1 "b":2}"#,
            r#"{"a":[1,]}"#,
            r#"{"a":[1 2]}"#,
            r#"{"a":[1}"#,
            r#"{"a":+1}"#,
            r#"{"a":01}"#,
            r#"{"a":.5}"#,
            r#"{"a":1.}"#,
            r#"{"a":1e}"#,
            r#"{"a":-}"#,
            r#"{"a":NaN}"#,
            r#"{"a":Infinity}"#,
            r#"{"a":1e999}"#,
            r#"{"a":True}"#,
            r#"{"a":nul}"#,
            r#"{"a":"}"#,
            r#"{"a":"\x"}"#,
            r#"{"a":"\u12"}"#,
            r#"{"a":"\ud83e"}"#,
            r#"{"a":"\ud83e\u0041"}"#,
            r#"{"a":"\udd88"}"#,
            "{\"a\":\"\n\"}",
            "{\"a\":\"\u{8}\"}",
            "\u{feff}{}",
            "true",
            "{{}}",
            "\u{1}{}",
        ] {
            assert_eq!(object_in(text), None, "{text}");
        }
    }

    #[test]
    fn object_nested_too_deeply_stays_string() {
        let nested = |depth: usize| format!("{}1{}", "{\"a\":".repeat(depth), "}".repeat(depth));
        assert_eq!(object_in(&nested(64)), Some(nested(64)));
        assert_eq!(object_in(&nested(65)), None);
        assert_eq!(object_in(&"{\"a\":[".repeat(500_000)), None);
    }
}
