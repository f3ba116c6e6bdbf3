//! Texts and numbers, chosen mostly where two languages could disagree.

use fastrand::Rng;

use super::json::{Json, null};

/// Picks one of several values.
pub(crate) fn pick<'a, T: ?Sized>(random: &mut Rng, of: &[&'a T]) -> &'a T {
    of[random.usize(..of.len())]
}

/// Returns true once in this many calls, on average.
pub(crate) fn once_in(random: &mut Rng, times: usize) -> bool {
    random.usize(..times) == 0
}

const NUMBERS: &[&str] = &[
    "0",
    "1",
    "2",
    "3",
    "7",
    "10",
    "31",
    "-1",
    "-3",
    "007",
    "-0",
    "-007",
    "0.0",
    "-0.0",
    "1.0",
    "1.5",
    "1.50",
    "01.5",
    "-1.25",
    "+5",
    " 5",
    "5 ",
    "\t5\n",
    "1_000",
    "1__0",
    "_1",
    "1_",
    "1_0.0_1",
    "1_.5",
    "٣",
    "١٢",
    "１２",
    "1٢",
    "٣.٥",
    "1e3",
    "1E-7",
    "1e+16",
    "1e400",
    "-1e400",
    "inf",
    "+inf",
    "-Infinity",
    "INFINITY",
    "nan",
    "-NaN",
    "0x10",
    "1.",
    ".5",
    "5.",
    "+.5e-3",
    "9007199254740992",
    "9007199254740993",
    "-9007199254740993",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775808",
    "-9223372036854775809",
    "18446744073709551616",
    "99999999999999999999999",
    "-170141183460469231731687303715884105728",
    "000000000000000000000000000007",
    "0.1",
    "0.30000000000000004",
    "0.3",
    "2.2250738585072014e-308",
    "5e-324",
    "1.7976931348623157e308",
    "123456789012345680.0",
    "0.0001",
    "0.00001",
    "1e16",
    "10000000000000000.0",
    "1000000000000000.0",
    "9999999999999999.5",
    "100.0",
    "100",
    "50",
    "\u{1c}5",
    "5\u{1f}",
    "\u{1f}٣",
    "\u{a0}5",
    "5\u{85}",
    "\u{3000}5\u{2003}",
    "\u{200b}5",
    "\u{feff}5",
    "5\0",
    "²",
    "½",
    "1 2",
    "--1",
    "𝟘𝟙",
    "1,5",
    "1e",
    "e1",
    "1e5_0",
    "0_0",
    "infinit",
    "1.5.2",
    "0b1",
];

const VERSIONS: &[&str] = &[
    "1.2.3",
    "1.2.4",
    "1.10.0",
    "1.9.0",
    "0.0.0",
    "1.2.3-alpha",
    "1.2.3-alpha.1",
    "1.2.3-alpha.beta",
    "1.2.3-alpha.10",
    "1.2.3-alpha.9",
    "1.2.3-1",
    "1.2.3-0a",
    "1.2.3--",
    "1.2.3-a-b",
    "1.2.3+build",
    "1.2.3+001",
    "1.2.3-rc.1+build.5",
    "1.2.3-99999999999999999999",
    "99999999999999999999.0.0",
    "01.2.3",
    "v1.2.3",
    "1.2",
    "1",
    "1.2.3.4",
    "1.2.3-",
    "1.2.3+",
    "1.2.3-01",
    "1.2.3-a..b",
    "1.2.3\n",
    " 1.2.3",
    // Not 1٢.0.0, which COMPATIBILITY.md lists: Python takes it for a version.
    "12.0.0",
    "1.2.3-é",
    "1.2.3-alpha+alpha",
    "1.2.3-ALPHA",
    "2.0.0",
    "1.2.3-0",
    "1.2.3-alpha.0x",
    "1.2.3-9a",
    "1.2.3-10",
];

const WORDS: &[&str] = &[
    "",
    "a",
    "b",
    "ab",
    "abc",
    "A",
    "b,c",
    "a,b",
    ",",
    " a",
    "a ",
    "true",
    "True",
    "TRUE",
    "false",
    "False",
    "FALSE",
    "null",
    "None",
    "none",
    "größe",
    "gro\u{308}ße",
    "GRÖSSE",
    "日本",
    "𝟘",
    "😀",
    "İ",
    "ı",
    "ſ",
    "ß",
    "ẞ",
    "\u{212a}",
    "\0",
    "\u{7f}",
    "a\"b",
    "it's",
    "back\\slash",
    "line\nline",
    "line\n",
    "tab\t",
    "\u{2028}",
    "\u{e000}",
    "\u{10ffff}",
    "[",
    "[1]",
    "[\"a\"]",
    "{}",
    ":semver",
    "alpha",
    "build",
    "control",
    "$.identity.identifier",
    "a|b",
    "user_1",
    "e_user_1",
    "premium",
    "beta testers",
    "\u{feff}",
    "\u{0}a",
    "é",
    "ÿ",
    "Σ",
    "ς",
    "σ",
];

/// Returns any text.
pub(crate) fn text(random: &mut Rng) -> String {
    match random.u8(..12) {
        0..=3 => pick(random, NUMBERS).to_owned(),
        4 => pick(random, VERSIONS).to_owned(),
        5 => format!("{}{}", pick(random, VERSIONS), if random.bool() { ":semver" } else { "" }),
        6..=8 => pick(random, WORDS).to_owned(),
        9 => random.i64(..).to_string(),
        10 => format!("{}{}", pick(random, WORDS), pick(random, WORDS)),
        _ => float(random),
    }
}

/// Returns a version that is comparable with [`versions`].
pub(crate) fn version(random: &mut Rng) -> String {
    pick(random, VERSIONS).to_owned()
}

/// Returns a float in JSON notation; every such text is a number.
pub(crate) fn float(random: &mut Rng) -> String {
    let float = match random.u8(..5) {
        0 => f64::from_bits(random.u64(..)),
        1 => (random.f64() - 0.5) * 10_f64.powi(random.i32(-10..25)),
        2 => f64::from(random.i32(-1000..1000)) / 8.0,
        3 => f64::from_bits(1e16_f64.to_bits().wrapping_add_signed(random.i64(-3..3))),
        _ => f64::from_bits(0.0001_f64.to_bits().wrapping_add_signed(random.i64(-3..3))),
    };
    let float = if float.is_finite() { float } else { 1.5 };
    match random.u8(..3) {
        0 => format!("{float:e}"),
        1 => format!("{float:?}"),
        _ => format!("{float}"),
    }
}

/// True if the text is a number in JSON notation with a finite value.
pub(crate) fn is_number(text: &str) -> bool {
    serde_json::from_str::<serde_json::Number>(text).is_ok()
        && !text.starts_with(char::is_whitespace)
        && !text.ends_with(char::is_whitespace)
}

/// Returns a text as the value of a trait or flag: unchanged, or as the number, boolean or null that it looks like.
pub(crate) fn typed(random: &mut Rng, text: &str) -> Json {
    if random.bool() {
        return text.into();
    }
    match text {
        "true" | "True" | "TRUE" | "1" if random.bool() => true.into(),
        "false" | "False" | "FALSE" | "0" if random.bool() => false.into(),
        "null" | "None" | "none" | "" => null(),
        _ if is_number(text) => Json::Token(text.to_owned()),
        _ => text.into(),
    }
}

/// Returns a feature's value.
pub(crate) fn scalar(random: &mut Rng) -> Json {
    let text = text(random);
    match random.u8(..8) {
        0 => null(),
        1 => random.bool().into(),
        2 => i64::from(random.i8(..)).into(),
        3 => Json::Token(float(random)),
        _ => typed(random, &text),
    }
}

/// Returns the text of an array of arbitrary members, as the operator `IN` accepts it; sometimes malformed.
pub(crate) fn array_text(random: &mut Rng, vocabulary: &[String]) -> String {
    fn member(random: &mut Rng, vocabulary: &[String], depth: u8) -> String {
        let text = &vocabulary[random.usize(..vocabulary.len())];
        match random.u8(..20) {
            0 => "null".to_owned(),
            1 => pick(random, &["true", "false"]).to_owned(),
            2 => float(random),
            3 => pick(
                random,
                &[
                    "NaN",
                    "Infinity",
                    "-Infinity",
                    "1e400",
                    "-0",
                    "-0.0",
                    "1E2",
                    "1e-7",
                    "100000000000000000000.0",
                    "12345678901234567890123",
                ],
            )
            .to_owned(),
            4 if depth < 2 => array(random, vocabulary, depth + 1),
            5 if depth < 2 => format!("{{{}:{}}}", Json::from(text.as_str()), member(random, vocabulary, depth + 1)),
            6 => pick(
                random,
                &[
                    "01",
                    "+1",
                    "1.",
                    ".5",
                    "'a'",
                    "",
                    "undefined",
                    "\"a",
                    "\"\\ud83d\\ude00\"",
                    "\"\\u00e9\\/\"",
                    "\"\\x\"",
                    "\"\t\"",
                    "\u{a0}1",
                    "tru",
                ],
            )
            .to_owned(),
            7..=10 if is_number(text) => text.clone(),
            _ => Json::from(text.as_str()).to_string(),
        }
    }
    fn array(random: &mut Rng, vocabulary: &[String], depth: u8) -> String {
        let members: Vec<String> = (0..random.usize(..4)).map(|_| member(random, vocabulary, depth)).collect();
        let comma = pick(random, &[",", ", ", " ,\n", ","]);
        let mut array = format!("[{}]", members.join(comma));
        if once_in(random, 15) {
            array.push_str(pick(random, &[" ", ",", "]", " x", "\n"]));
        } else if once_in(random, 20) {
            array.pop();
        }
        array
    }
    array(random, vocabulary, 0)
}
