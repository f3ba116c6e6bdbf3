//! The segments of a [`Maker`]: nested rules, and the values of conditions.

use fastrand::Rng;

use super::documents::{Maker, TRAITS, typed_word};
use super::json::{Json, map, null};
use super::patterns::Pattern;
use super::values::{array_text, once_in, pick};

const OPERATORS: &[&str] = &[
    "EQUAL",
    "NOT_EQUAL",
    "GREATER_THAN",
    "GREATER_THAN_INCLUSIVE",
    "LESS_THAN",
    "LESS_THAN_INCLUSIVE",
    "CONTAINS",
    "NOT_CONTAINS",
    "REGEX",
    "MODULO",
    "IN",
    "IN",
    "IS_SET",
    "IS_NOT_SET",
    "PERCENTAGE_SPLIT",
    "PERCENTAGE_SPLIT",
];
impl Maker<'_> {
    pub(super) fn segment(&mut self, id: i64) -> Json {
        let mut overrides = Vec::new();
        for _ in 0..self.random.usize(..5) {
            let feature = self.random.usize(..self.features.len());
            overrides.push(self.state(feature, true));
        }
        if once_in(self.random, 20) {
            let feature = map([("id", 999.into()), ("name", "unknown".into())]);
            overrides.push(map([
                ("feature", feature),
                ("enabled", true.into()),
                ("featurestate_uuid", "x".into()),
                ("feature_state_value", null()),
            ]));
        }
        let depth = self.random.u8(..4);
        let rules: Vec<Json> = (0..[0, 1, 1, 1, 1, 2][self.random.usize(..6)]).map(|_| self.rule(depth, id)).collect();
        map([
            ("id", id.into()),
            ("name", self.word().as_str().into()),
            ("rules", rules.into()),
            ("feature_states", overrides.into()),
        ])
    }

    fn rule(&mut self, depth: u8, segment: i64) -> Json {
        let conditions: Vec<Json> =
            (0..[0, 1, 1, 1, 2, 3][self.random.usize(..6)]).map(|_| self.condition(segment)).collect();
        let rules: Vec<Json> = if depth > 0 {
            (0..self.random.usize(..3)).map(|_| self.rule(depth - 1, segment)).collect()
        } else {
            Vec::new()
        };
        map([
            ("type", pick(self.random, &["ALL", "ANY", "NONE", "ALL"]).into()),
            ("conditions", conditions.into()),
            ("rules", rules.into()),
        ])
    }

    fn condition(&mut self, segment: i64) -> Json {
        let operator = if once_in(self.random, 60) { "BETWEEN" } else { pick(self.random, OPERATORS) };
        let property = self.property(operator);
        let value = match operator {
            _ if once_in(self.random, 40) => null(),
            "REGEX" => {
                let pattern = Pattern::new(self.random, false);
                let text = pattern.text.as_str().into();
                self.vocabulary.push(pattern.sample(self.random));
                self.patterns.push(pattern);
                text
            }
            "MODULO" => {
                format!("{}{}{}", self.number(), pick(self.random, &["|", "|", "|", "|", "||", ""]), self.number())
                    .as_str()
                    .into()
            }
            "IN" => self.members(),
            "PERCENTAGE_SPLIT" if self.random.u8(..5) > 0 => match self.random.u8(..3) {
                0 => self.random.u8(..101).to_string().as_str().into(),
                // The exact percentage of an identity, or one of its neighbouring floats.
                1 => {
                    let exact: f64 = self.exact(&segment.to_string()).parse().unwrap();
                    let near = f64::from_bits(exact.to_bits().wrapping_add_signed(self.random.i64(-1..2)));
                    format!("{near:?}").as_str().into()
                }
                _ => pick(
                    self.random,
                    &[
                        "50", "0", "100", "-1", "1e2", " 33.3 ", "nan", "inf", "-0.0", "5_0", "٥٠", "50%", "99.99",
                        "\u{1c}50", "1e-320",
                    ],
                )
                .into(),
            },
            _ if self.depends_on_flags && property.starts_with("$.flags") && self.random.bool() => pick(
                self.random,
                &["true", "false", "True", "", "control", "TARGETING", "STATIC", "DEFAULT", "1", "red"],
            )
            .into(),
            _ => self.word().as_str().into(),
        };
        map([
            ("operator", operator.into()),
            ("value", value),
            ("property_", if property.is_empty() && self.random.bool() { null() } else { property.as_str().into() }),
        ])
    }

    fn number(&mut self) -> String {
        if once_in(self.random, 3) {
            self.word()
        } else {
            pick(
                self.random,
                &["2", "3", "0", "1", "-3", "2.5", "0.1", " 4", "10", "1e1", "inf", "nan", "-0.0", "1_0", "٣", "0.5"],
            )
            .to_owned()
        }
    }

    fn members(&mut self) -> Json {
        match self.random.u8(..6) {
            0 => array_text(self.random, &self.vocabulary).as_str().into(),
            1 => array_text(self.random, &self.vocabulary).as_str().into(),
            2 => {
                let members: Vec<Json> = (0..self.random.usize(..4)).map(|_| typed_word(self)).collect();
                members.into()
            }
            3 => self.identifiers.join(",").as_str().into(),
            _ => {
                let members: Vec<String> = (0..self.random.usize(1..5)).map(|_| self.word()).collect();
                members.join(",").as_str().into()
            }
        }
    }

    fn property(&mut self, operator: &str) -> String {
        if operator == "PERCENTAGE_SPLIT" && self.random.bool() {
            return String::new();
        }
        if self.depends_on_flags && once_in(self.random, 2) {
            let fields = [
                "enabled",
                "enabled",
                "enabled",
                "value",
                "value",
                "variant",
                "reason",
                "name",
                "metadata.id",
                "metadata",
                "nothing",
                "",
            ];
            let field = fields[self.random.usize(..fields.len())];
            let feature = if once_in(self.random, 12) {
                "unknown".to_owned()
            } else {
                self.features[self.random.usize(..self.features.len())].clone()
            };
            return path(self.random, "flags", &feature, field);
        }
        match self.random.u8(..16) {
            0 => "$.identity.identifier".to_owned(),
            1 => "$.identity.key".to_owned(),
            2 => pick(
                self.random,
                &[
                    "$.environment.name",
                    "$.environment.key",
                    "$.environment['name']",
                    "$['environment'].name",
                    "$.environment",
                    "$.environment.id",
                ],
            )
            .to_owned(),
            3 => {
                let name = pick(self.random, TRAITS);
                if name.starts_with("$.") {
                    "$.identity.traits.t".to_owned()
                } else {
                    path(self.random, "identity.traits", name, "")
                }
            }
            4 if once_in(self.random, 2) => pick(
                self.random,
                &[
                    "$.identity",
                    "$.identity.traits",
                    "$.segments",
                    "$.x",
                    "$.flags",
                    "$.features",
                    "$.identity.identifier.x",
                    "$.environment.name.x",
                    "$.",
                    "$.identity.traits.",
                    "$.a b",
                    "$.[",
                    "$.identity.other",
                ],
            )
            .to_owned(),
            5 if once_in(self.random, 2) => {
                let field = pick(
                    self.random,
                    &["enabled", "value", "key", "name", "metadata.id", "metadata", "variants", "priority"],
                );
                let feature = self.features[self.random.usize(..self.features.len())].clone();
                path(self.random, "features", &feature, field)
            }
            6 if once_in(self.random, 2) && !self.segments.is_empty() => {
                let segment = self.segments[self.random.usize(..self.segments.len())].to_string();
                let field = pick(self.random, &["name", "key", "metadata.id", "metadata.source", "rules", "overrides"]);
                path(self.random, "segments", &segment, field)
            }
            _ => pick(self.random, TRAITS).to_owned(),
        }
    }
}

/// Returns the path `$.root.name.field`, with the name in one of its possible notations.
fn path(random: &mut Rng, root: &str, name: &str, field: &str) -> String {
    let is_simple = name.chars().next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_' || !c.is_ascii())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-') || !c.is_ascii());
    let name = match random.u8(..3) {
        _ if is_simple && random.bool() => format!(".{name}"),
        0 => format!("[{}]", serde_json::to_string(name).unwrap()),
        _ => {
            let escaped: String = name
                .chars()
                .map(|c| match c {
                    '\'' => "\\'".to_owned(),
                    '\\' => "\\\\".to_owned(),
                    '\n' => "\\n".to_owned(),
                    c if c < ' ' || once_char(random, c) => format!("\\u{:04x}", u32::from(c)),
                    c => c.to_string(),
                })
                .collect();
            format!("['{escaped}']")
        }
    };
    let blank = if once_in(random, 12) { pick(random, &[" ", "\t", "\n", "\r "]) } else { "" };
    format!("$.{root}{blank}{name}{}{field}", if field.is_empty() { "" } else { "." })
}

fn once_char(random: &mut Rng, c: char) -> bool {
    u32::from(c) < 0xd800 && once_in(random, 8)
}
