//! Tests of the reader against the grammar of JSON, and against another reader.

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
fn scalar_is_read_as_its_type() {
    assert_eq!(value(" null\n"), Ok(Value::Null));
    assert_eq!(value("true"), Ok(Value::Bool(true)));
    assert_eq!(value("-12"), Ok(Value::Integer("-12")));
    assert_eq!(value("-0"), Ok(Value::Integer("0")));
    assert_eq!(value("123456789012345678901234567890"), Ok(Value::Integer("123456789012345678901234567890")));
    assert_eq!(value("2.0"), Ok(Value::Float(Float::of("2.0"))));
    assert_eq!(value("1E-2"), Ok(Value::Float(Float::of("1E-2"))));
}

#[test]
fn string_escapes_are_decoded() {
    assert_eq!(decoded(r#""plain ö""#), "plain ö");
    assert_eq!(decoded(r#""\"\\\/\b\f\n\r\t\u00e9\u20ac\ud83d\ude00x""#), "\"\\/\u{8}\u{c}\n\r\té€😀x");
    assert_eq!(decoded(r#""\u0000""#), "\0");
}

#[test]
fn string_is_written_with_the_required_escapes_only() {
    let mut out = Vec::new();
    write_string("a\"b\\c\n\r\t\u{8}\u{c}\u{1}\u{1f}\u{7f}/ö", &mut out);
    assert_eq!(String::from_utf8(out).unwrap(), "\"a\\\"b\\\\c\\n\\r\\t\\b\\f\\u0001\\u001f\u{7f}/ö\"");
}

#[test]
fn plain_bytes_are_counted_alike_in_words_and_singly() {
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
fn nesting_deeper_than_64_is_refused() {
    let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    assert_eq!(value(&nested(64)), Ok(Value::Array));
    assert!(value(&nested(65)).is_err());
    assert!(value(&"[".repeat(1_000_000)).is_err());
    assert!(value(&"{\"a\":".repeat(100_000)).is_err());
}

#[test]
fn malformed_json_is_refused_with_its_offset() {
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
        let Malformed { at: found, problem } = value(body).unwrap_err();
        assert_eq!(found, at, "{body:?}");
        // Answers have it in a JSON string as it is.
        assert!(!problem.contains(['"', '\\']), "{problem}");
    }
    assert!(value(&"1".repeat(4301)).is_err());
    assert_eq!(Reader::new(b"\"\xff\"").map(|_| ()).map_err(|problem| problem.at), Err(1));
}

#[test]
fn truncated_body_is_refused_at_every_cut() {
    let body = r#"{"identifier":"ü\ud83d\ude00","traits":[{"trait_key":"k","trait_value":-1.5e3},true,null]}"#;
    assert_eq!(value(body), Ok(Value::Object));
    for (at, _) in body.char_indices() {
        assert!(value(&body[..at]).is_err(), "cut at {at}");
    }
}

/// Randomly damaged bodies are accepted, refused and read as another reader does it.
#[test]
fn damaged_body_is_accepted_only_if_serde_json_accepts_it() {
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

#[test]
fn fast_path_reads_a_scalar_in_serializer_form_only() {
    for (token, value) in [
        ("1", Value::Integer("1")),
        ("-12.5", Value::Float(Float::of("-12.5"))),
        ("\"a b\"", Value::String(Text { raw: "a b", escaped: false })),
        ("null", Value::Null),
        ("true", Value::Bool(true)),
        ("false", Value::Bool(false)),
    ] {
        for rest in ["", ",", "}", " ", "]", "x"] {
            assert_eq!(fast::scalar(&format!("{token}{rest}")), Some((value, rest)), "{token}{rest}");
        }
    }
    for text in ["", "}", " 1", "[1]", "{}", "\"a", "\"\\n\"", "01", "-", "-0", "1.", "1.50", "nul", "a"] {
        assert_eq!(fast::scalar(text), None, "{text}");
    }
}
