//! Tests of refusals, and of the fast path: it must read every body as the general reader does.

use remora_snapshot::model::{Derivation, Environment, Property};
use remora_snapshot::write;

use super::*;
use crate::json::Malformed;

/// Traits that the snapshot reads, so that their values appear in the request state.
const READ: [&str; 4] = ["plan", "age", "länge", "a\"b"];

pub(crate) fn snapshot() -> Snapshot<Vec<u8>> {
    let property = |name: &str| Property { name: Some(name.to_owned()), derivation: Derivation::Plain };
    let environment = Environment {
        name: "shop".to_owned(),
        client_key: "client-key".to_owned(),
        properties: READ.map(property).to_vec(),
        ..Environment::default()
    };
    let core = write(&environment, 1_000_000).unwrap().files.swap_remove(0);
    Snapshot::read(core.bytes).unwrap()
}

/// A generator of random bodies.
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new() -> Dice {
        Dice(1)
    }

    pub(crate) fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % limit
    }

    pub(crate) fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.below(from.len())]
    }

    /// A quoted name.
    pub(crate) fn name(&mut self) -> &'static str {
        self.pick(&[
            r#""plan""#,
            r#""age""#,
            r#""länge""#,
            r#""other""#,
            r#"" plan""#,
            "\"age\u{a0}\"",
            r#""""#,
            r#""a\"b""#,
            r#""\u0070lan""#,
            r#""a name that is longer than what is copied in one move, which is thirty-two""#,
            r#""targetingKey""#,
            r#""traits""#,
            r#""transient""#,
        ])
    }

    /// A value, which is rarely invalid JSON.
    pub(crate) fn value(&mut self) -> String {
        if self.below(400) == 0 {
            let characters = 1998 + self.below(4);
            return format!("\"{}\"", self.pick(&["x", "ü", "\\n"]).repeat(characters));
        }
        if self.below(20) == 0 {
            return self
                .pick(&["tru", "nul", "01", "-01", "1.", ".5", "-", "+1", "1e", "1e400", "\"a", "\"\n\"", ""])
                .to_owned();
        }
        let value = self.pick(&[
            "\"pro\"",
            "\"\"",
            "\"12\"",
            "\"a\\\"b\"",
            "\"ü\"",
            "\"jane.doe+flags@customers.example\"",
            "\"tab\\t\"",
            "34",
            "0",
            "-7",
            "-0",
            "123456789012345678901234567890",
            "1000000000000000000000000000000000000000000",
            "1.0",
            "1.5",
            "1.50",
            "-0.0",
            "0.00001",
            "0.0001",
            "1249.5",
            "1e5",
            "1E-2",
            "1.5e3",
            "123456789.123456789",
            "99999999999999.5",
            "1.7976931348623157e308",
            "true",
            "false",
            "null",
            "[1, {\"a\": 2}]",
            "{\"plan\": [\"x\"]}",
        ]);
        value.to_owned()
    }

    /// Separators behind names and behind members: those of a serializer, or random white space.
    pub(crate) fn separators(&mut self) -> [&'static str; 2] {
        match self.below(8) {
            0..3 => [":", ","],
            3..6 => [": ", ", "],
            _ => [self.pick(&[":", ": ", " :", ":\t", ":  "]), self.pick(&[",", ", ", " ,", ",\n", ",  "])],
        }
    }

    /// Returns the body, usually unchanged, or with a random insertion, or without its end.
    pub(crate) fn damaged(&mut self, body: String) -> Vec<u8> {
        const SPLINTERS: [&[u8]; 16] = [
            b"\"", b"\\", b"{", b"}", b"[", b"]", b",", b":", b"0", b".", b"e", b" ", b"\n", b"\xc3", b"null", b"\x1f",
        ];
        let mut bytes = body.into_bytes();
        match self.below(6) {
            0 => bytes.truncate(self.below(bytes.len() + 1)),
            1 => {
                let at = self.below(bytes.len());
                let end = (at + self.below(4)).min(bytes.len());
                let splinter = SPLINTERS[self.below(SPLINTERS.len())];
                bytes.splice(at..end, splinter.iter().copied());
            }
            _ => {}
        }
        bytes
    }
}

fn one_trait(dice: &mut Dice, [colon, comma]: [&str; 2]) -> String {
    let (name, value) = (dice.name(), dice.value());
    match dice.below(16) {
        0 => format!("{{\"trait_value\"{colon}{value}{comma}\"trait_key\"{colon}{name}}}"),
        1 => format!("{{\"trait_key\"{colon}{name}}}"),
        2 => format!(
            "{{\"trait_key\"{colon}{name}{comma}\"trait_value\"{colon}{value}{comma}\"trait_key\"{colon}\"age\"}}"
        ),
        3 => {
            format!("{{\"trait_key\"{colon}{name}{comma}\"trait_value\"{colon}{value}{comma}\"transient\"{colon}true}}")
        }
        15 => format!(
            "{{\"trait_key\"{colon}[]{comma}\"trait_value\"{colon}{value}{comma}\"trait_key\"{colon}{name}{comma}\"trait_value\"{colon}1}}"
        ),
        4 => dice.pick(&["null", "{}", "1", "{\"trait_value\":1}", "{\"trait_key\":1,\"trait_value\":2}"]).to_owned(),
        5 => {
            let space = dice.pick(&[" ", "\n"]);
            format!("{{{space}\"trait_key\"{colon}{name}{comma}\"trait_value\"{colon}{value}{space}}}")
        }
        _ => format!("{{\"trait_key\"{colon}{name}{comma}\"trait_value\"{colon}{value}}}"),
    }
}

fn one_body(dice: &mut Dice) -> String {
    let separators = dice.separators();
    let [colon, comma] = separators;
    let traits: Vec<String> = (0..dice.below(6))
        .map(|_| {
            let separators = if dice.below(10) == 0 { dice.separators() } else { separators };
            one_trait(dice, separators)
        })
        .collect();
    let traits = format!("\"traits\"{colon}[{}]", traits.join(comma));
    let identifier = dice.pick(&["\"somebody\"", "\"\"", "null", "\"\\u00fc\"", "\"ü\"", "1"]);
    let identifier = format!("\"identifier\"{colon}{identifier}");
    match dice.below(10) {
        9 => format!("{{\"traits\"{colon}[null]{comma}\"identifier\"{colon}true{comma}{identifier}{comma}{traits}}}"),
        8 => format!("{{{traits}{comma}{identifier}{comma}\"traits\"{colon}[{{\"trait_key\"{colon}\"age\"}}]}}"),
        0 => format!("{{{traits}{comma}{identifier}}}"),
        1 => format!("{{{identifier}{comma}{traits}{comma}{traits}}}"),
        2 => format!("{{\"transient\"{colon}false{comma}{identifier}{comma}{traits} }}"),
        _ => format!("{{{identifier}{comma}{traits}}}"),
    }
}

/// The complete result of reading a body: identifier, request state and echo.
fn read_with<const FAST: bool>(body: &[u8], snapshot: &Snapshot<Vec<u8>>) -> Result<[String; 3], InvalidBody> {
    let mut scratch = Scratch::default();
    let identifier = read::<FAST, _>(body, snapshot, &mut scratch)?;
    let echo = String::from_utf8(scratch.echo).unwrap();
    Ok([format!("{identifier:?}"), format!("{:?}", scratch.request), echo])
}

#[test]
fn fast_path_reads_every_body_like_the_general_reader() {
    let snapshot = snapshot();
    let mut dice = Dice::new();
    let (mut accepted, mut refused) = (0, 0);
    for _ in 0..100_000 {
        let body = one_body(&mut dice);
        let body = dice.damaged(body);
        let (ahead, steps) = (read_with::<true>(&body, &snapshot), read_with::<false>(&body, &snapshot));
        assert_eq!(ahead, steps, "{}", String::from_utf8_lossy(&body));
        match ahead {
            Ok([_, _, echo]) => {
                accepted += 1;
                assert!(serde_json::from_str::<serde_json::Value>(&echo).is_ok(), "{echo}");
            }
            Err(_) => refused += 1,
        }
    }
    assert!(accepted > 10_000 && refused > 10_000, "{accepted}, {refused}");
}

#[test]
fn truncated_body_is_refused_at_the_same_offset_by_both_paths() {
    let snapshot = snapshot();
    for [colon, comma] in [[":", ","], [": ", ", "]] {
        let mut body = format!("{{\"identifier\"{colon}\"ü\"{comma}\"traits\"{colon}[");
        for value in ["\"scale-up\"", "34", "1249.5", "true", "null", "\"ü\"", "-0.5"] {
            body += &format!("{{\"trait_key\"{colon}\"plan\"{comma}\"trait_value\"{colon}{value}}}{comma}");
        }
        body.truncate(body.len() - comma.len());
        body += "]}";
        assert!(read_with::<true>(body.as_bytes(), &snapshot).is_ok());
        for end in 1..body.len() {
            let cut = &body.as_bytes()[..end];
            let refused = read_with::<true>(cut, &snapshot);
            assert!(refused.is_err());
            assert_eq!(refused, read_with::<false>(cut, &snapshot), "{}", String::from_utf8_lossy(cut));
        }
    }
}

#[test]
fn refusal_names_its_location() {
    let write = |refused: InvalidBody| {
        let mut out = Vec::new();
        refused.write(&mut out);
        String::from_utf8(out).unwrap()
    };
    assert_eq!(
        write(InvalidBody::Invalid(Location::TraitMember(3, "trait_key"), Problem::Missing)),
        r#"{"detail":[{"type":"missing","loc":["body","traits",3,"trait_key"],"msg":"Field required","input":null}]}"#
    );
    assert_eq!(
        write(InvalidBody::Malformed(Malformed { at: 7, problem: "expected a value" })),
        r#"{"detail":[{"type":"json_invalid","loc":["body",7],"msg":"JSON decode error","input":{},"ctx":{"error":"expected a value"}}]}"#
    );
}
