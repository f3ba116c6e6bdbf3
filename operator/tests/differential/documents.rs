//! Environments and identities at random, small ones in which everything can meet everything.

use fastrand::Rng;

use super::json::{Json, map, null};
use super::patterns::Pattern;
use super::values::{self, array_text, once_in, pick, scalar, typed};

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
const FEATURES: &[&str] = &[
    "f",
    "g",
    "größe",
    "a b",
    "x.y",
    "日本",
    "it's",
    "q\"uote",
    "back\\slash",
    "UPPER",
    "f1",
    "f2",
    "f3",
    "f_4",
    "7",
    "",
    "\u{7f}\n",
    "enabled",
    "*",
];
const TRAITS: &[&str] = &[
    "t",
    "t",
    "t",
    "plan",
    "age",
    "größe",
    "a b",
    "",
    "it's",
    "q\"",
    "b\\s",
    "$.identity.identifier",
    "$.identity.key",
    "$.environment.name",
    "$.t",
    "$.",
    "$.flags.f.enabled",
    "$['t']",
    "$. t",
    "$.t[",
    "identity.traits.t",
    "日本",
    "7",
    "\n",
];
const IDENTIFIERS: &[&str] = &[
    "user_1",
    "user_2",
    "a",
    "",
    "7",
    "007",
    "1.50",
    "1.0",
    "-0",
    "a,b",
    "größe",
    "True",
    "None",
    "\0",
    "$.x",
    "99999999999999999999",
    "İ",
    "e_a",
    "abc",
    "[1]",
];

/// One environment that is being made.
pub(crate) struct Maker<'r> {
    random: &'r mut Rng,
    features: Vec<String>,
    segments: Vec<i64>,
    identifiers: Vec<String>,
    /// What conditions ask for and traits have.
    vocabulary: Vec<String>,
    patterns: Vec<Pattern>,
    depends_on_flags: bool,
}

/// A document, and identities to ask it for.
pub(crate) fn case(random: &mut Rng) -> Json {
    let features = distinct(random, FEATURES, 7);
    let segments =
        (0..random.usize(..7)).map(|_| if once_in(random, 8) { random.i64(..) } else { random.i64(0..9) }).collect();
    let mut identifiers = distinct(random, IDENTIFIERS, 6);
    identifiers.push(format!("user_{}", random.u32(..100_000)));
    let mut vocabulary: Vec<String> = (0..random.usize(3..9)).map(|_| values::text(random)).collect();
    vocabulary.push(identifiers[0].clone());
    let depends_on_flags = once_in(random, 3);
    let mut maker =
        Maker { random, features, segments, identifiers, vocabulary, patterns: Vec::new(), depends_on_flags };
    let document = if once_in(maker.random, 6) { maker.of_patterns() } else { maker.document() };
    let identities: Vec<Json> = (0..maker.random.usize(8..24)).map(|_| maker.identity()).collect();
    map([("document", document), ("identities", identities.into())])
}

/// Globs to include and to exclude, of which some match.
pub(crate) fn globs(random: &mut Rng, document: &Json) -> [Vec<String>; 2] {
    let names: Vec<&str> = document
        .get("feature_states")
        .unwrap()
        .items()
        .iter()
        .filter_map(|state| state.get("feature")?.get("name")?.text())
        .collect();
    [(); 2].map(|()| {
        let mut glob = || {
            let name = names[random.usize(..names.len())];
            let escaped = name.replace('\\', "\\\\").replace('*', "\\*");
            match random.u8(..4) {
                0 => pick(random, &["f*", "?", "*[0-9]", "[a-g]*", "*r*"]).to_owned(),
                1 => escaped
                    .chars()
                    .next()
                    .map_or_else(String::new, |_| format!("*{}", escaped.trim_start_matches(char::is_alphanumeric))),
                _ => escaped,
            }
        };
        (0..3).map(|_| glob()).take(names.len() / 2).collect()
    })
}

fn distinct(random: &mut Rng, of: &[&str], most: usize) -> Vec<String> {
    let mut all: Vec<String> = of.iter().map(|&text| text.to_owned()).collect();
    random.shuffle(&mut all);
    all.truncate(random.usize(1..=most));
    all
}

impl Maker<'_> {
    fn document(&mut self) -> Json {
        let mut states: Vec<Json> = Vec::new();
        for feature in 0..self.features.len() {
            states.push(self.state(feature, false));
        }
        if once_in(self.random, 30) {
            let again = self.random.usize(..self.features.len());
            states.push(self.state(again, false));
        }
        let segments: Vec<Json> = self.segments.clone().into_iter().map(|id| self.segment(id)).collect();
        self.around(states, segments)
    }

    /// Patterns and nothing else: each of a few segments asks one of the one trait, as what matches is interesting, not
    /// what is served then.
    fn of_patterns(&mut self) -> Json {
        self.features = (0..self.random.usize(3..9)).map(|number| format!("f{number}")).collect();
        self.identifiers = vec!["user_1".to_owned()];
        let mut states = Vec::new();
        let mut segments = Vec::new();
        for feature in 0..self.features.len() {
            states.push(self.plain_state(feature, false));
            let pattern = Pattern::new(self.random);
            let condition =
                map([("operator", "REGEX".into()), ("property_", "t".into()), ("value", pattern.text.as_str().into())]);
            self.patterns.push(pattern);
            let rule = map([("type", "ALL".into()), ("conditions", vec![condition].into())]);
            segments.push(map([
                ("id", (feature as i64).into()),
                ("name", "s".into()),
                ("rules", vec![rule].into()),
                ("feature_states", vec![self.plain_state(feature, true)].into()),
            ]));
        }
        self.around(states, segments)
    }

    fn plain_state(&self, feature: usize, enabled: bool) -> Json {
        map([
            (
                "feature",
                map([
                    ("id", (feature as i64 + 1).into()),
                    ("name", self.features[feature].as_str().into()),
                    ("type", "STANDARD".into()),
                ]),
            ),
            ("enabled", enabled.into()),
            ("featurestate_uuid", "x".into()),
            ("feature_state_value", null()),
        ])
    }

    fn around(&mut self, states: Vec<Json>, segments: Vec<Json>) -> Json {
        let server_only: Vec<Json> =
            (1..=self.features.len() as i64).filter(|_| once_in(self.random, 6)).map(Json::from).collect();
        let hide = |random: &mut Rng| pick(random, &["false", "false", "true", "null"]).to_owned();
        let name = if once_in(self.random, 12) { null() } else { self.word().as_str().into() };
        let overrides: Vec<Json> = (0..self.random.usize(..5)).map(|_| self.identity_override()).collect();
        map([
            ("api_key", pick(self.random, &["e", "env", "größe", "7", "QjgYur4LQTwe5HpvbvhpzK"]).into()),
            ("name", name),
            ("hide_disabled_flags", Json::Token(hide(self.random))),
            (
                "project",
                map([
                    ("segments", segments.into()),
                    ("hide_disabled_flags", Json::Token(hide(self.random))),
                    ("server_key_only_feature_ids", server_only.into()),
                ]),
            ),
            ("feature_states", states.into()),
            ("identity_overrides", overrides.into()),
        ])
    }

    fn word(&mut self) -> String {
        self.vocabulary[self.random.usize(..self.vocabulary.len())].clone()
    }

    fn feature_of(&self, feature: usize, kind: &str) -> Json {
        map([
            ("id", (feature as i64 + 1).into()),
            ("name", self.features[feature].as_str().into()),
            ("type", kind.into()),
        ])
    }

    /// A feature's state, in the environment or in a segment.
    fn state(&mut self, feature: usize, of_segment: bool) -> Json {
        let variants: Vec<Json> = if once_in(self.random, 3) {
            (0..self.random.usize(..5)).map(|_| self.variant()).collect()
        } else {
            Vec::new()
        };
        let kind = pick(self.random, &["STANDARD", "MULTIVARIATE"]);
        let mut state = map([
            ("feature", self.feature_of(feature, kind)),
            ("enabled", self.random.bool().into()),
            ("featurestate_uuid", format!("uuid-{}", self.random.u8(..)).as_str().into()),
            ("feature_state_value", if once_in(self.random, 3) { typed_word(self) } else { scalar(self.random) }),
        ]);
        if self.random.bool() {
            state.set(
                "django_id",
                if once_in(self.random, 4) {
                    Json::Token(pick(self.random, &["0", "null", "-5"]).to_owned())
                } else {
                    i64::from(self.random.u16(..)).into()
                },
            );
        }
        if !variants.is_empty() || self.random.bool() {
            state.set("multivariate_feature_state_values", variants.into());
        }
        if of_segment || once_in(self.random, 8) {
            match self.random.u8(..6) {
                0 => {}
                1 => state.set("feature_segment", null()),
                2 => state.set(
                    "feature_segment",
                    map([(
                        "priority",
                        Json::Token(
                            pick(self.random, &["null", "0", "-1", "1.5", "-0.5", "9007199254740993"]).to_owned(),
                        ),
                    )]),
                ),
                _ => state.set("feature_segment", map([("priority", self.random.i64(-1..4).into())])),
            }
        }
        state
    }

    fn variant(&mut self) -> Json {
        let weight = match self.random.u8(..6) {
            0 => pick(
                self.random,
                &["0", "100", "0.0", "100.0", "33.333", "1e1", "-5", "0.01", "150", "50.0", "12.50", "1E-3"],
            )
            .to_owned(),
            1 => format!("{}", self.random.f64() * 60.0),
            _ => self.random.u8(..60).to_string(),
        };
        let mut option = map([("value", scalar(self.random))]);
        match self.random.u8(..3) {
            0 => {}
            1 => option.set("key", null()),
            _ => option.set("key", pick(self.random, &["red", "blue", "größe", "", "control", "a\"b", "7"]).into()),
        }
        let mut variant =
            map([("multivariate_feature_option", option), ("percentage_allocation", Json::Token(weight))]);
        if self.random.u8(..4) > 0 {
            let id = pick(self.random, &["1", "2", "3", "5", "10", "-1", "-2", "0", "null", "900000000000"]).to_owned();
            variant.set("id", Json::Token(id));
        }
        let uuid = pick(
            self.random,
            &[
                "00000000-0000-0000-0000-000000000002",
                "0b2c3d4e-1111-2222-3333-444444444444",
                "FFFFFFFF-ffff-ffff-ffff-ffffffffffff",
                "00000000-0000-0000-0000-000000000000",
            ],
        );
        variant.set("mv_fs_value_uuid", uuid.into());
        variant
    }

    fn segment(&mut self, id: i64) -> Json {
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
        let rules: Vec<Json> = (0..[0, 1, 1, 1, 1, 2][self.random.usize(..6)]).map(|_| self.rule(depth)).collect();
        map([
            ("id", id.into()),
            ("name", self.word().as_str().into()),
            ("rules", rules.into()),
            ("feature_states", overrides.into()),
        ])
    }

    fn rule(&mut self, depth: u8) -> Json {
        let conditions: Vec<Json> = (0..[0, 1, 1, 1, 2, 3][self.random.usize(..6)]).map(|_| self.condition()).collect();
        let rules: Vec<Json> =
            if depth > 0 { (0..self.random.usize(..3)).map(|_| self.rule(depth - 1)).collect() } else { Vec::new() };
        map([
            ("type", pick(self.random, &["ALL", "ANY", "NONE", "ALL"]).into()),
            ("conditions", conditions.into()),
            ("rules", rules.into()),
        ])
    }

    fn condition(&mut self) -> Json {
        let operator = if once_in(self.random, 60) { "BETWEEN" } else { pick(self.random, OPERATORS) };
        let property = self.property(operator);
        let value = match operator {
            _ if once_in(self.random, 40) => null(),
            "REGEX" => {
                let pattern = Pattern::new(self.random);
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
                // One of the values that there are, to the bit, or its neighbour.
                1 => {
                    let exact = f64::from(self.random.u16(..9999)) / 9998.0 * 100.0;
                    format!("{:?}", f64::from_bits(exact.to_bits().wrapping_add_signed(self.random.i64(-1..2))))
                        .as_str()
                        .into()
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
                    &[
                        "enabled",
                        "value",
                        "key",
                        "name",
                        "metadata.id",
                        "metadata",
                        "variants",
                        "priority",
                    ],
                );
                let feature = self.features[self.random.usize(..self.features.len())].clone();
                path(self.random, "features", &feature, field)
            }
            6 if once_in(self.random, 2) && !self.segments.is_empty() => {
                let segment = self.segments[self.random.usize(..self.segments.len())].to_string();
                let field = pick(
                    self.random,
                    &[
                        "name",
                        "key",
                        "metadata.id",
                        "metadata.source",
                        "rules",
                        "overrides",
                    ],
                );
                path(self.random, "segments", &segment, field)
            }
            _ => pick(self.random, TRAITS).to_owned(),
        }
    }

    fn identity_override(&mut self) -> Json {
        let identifier = self.identifiers[self.random.usize(..self.identifiers.len())].clone();
        let flags: Vec<Json> = (0..self.random.usize(..4))
            .map(|_| {
                let feature = self.random.usize(..=self.features.len());
                let (name, id) =
                    self.features.get(feature).map_or(("unknown", 999), |name| (name.as_str(), feature as i64 + 1));
                let value = pick(self.random, &["1", "true", "1.0", "-1", "-2", "null", "\"a\"", "0", "false", "0.0"]);
                map([
                    ("feature", map([("id", id.into()), ("name", name.into()), ("type", "STANDARD".into())])),
                    ("enabled", self.random.bool().into()),
                    ("featurestate_uuid", "x".into()),
                    (
                        "feature_state_value",
                        if self.random.bool() { super::json::read(value) } else { scalar(self.random) },
                    ),
                ])
            })
            .collect();
        map([("identifier", identifier.as_str().into()), ("identity_features", flags.into())])
    }

    fn identity(&mut self) -> Json {
        let identifier = self.identifiers[self.random.usize(..self.identifiers.len())].clone();
        let mut traits = Json::Map(Vec::new());
        for _ in 0..[0, 1, 1, 2, 3, 4][self.random.usize(..6)] {
            let name = pick(self.random, TRAITS);
            let value = match self.random.u8(..10) {
                0 => scalar(self.random),
                1 => Json::Token(values::float(self.random)),
                2 => values::version(self.random).as_str().into(),
                3..=5 if !self.patterns.is_empty() => self.sample(),
                _ => typed_word(self),
            };
            traits.set(name, value);
        }
        if self.patterns.len() > 2 {
            let value = self.sample();
            traits.set("t", value);
        }
        map([("identifier", identifier.as_str().into()), ("traits", traits)])
    }

    fn sample(&mut self) -> Json {
        let number = self.random.usize(..self.patterns.len());
        self.patterns[number].sample(self.random).as_str().into()
    }
}

fn typed_word(maker: &mut Maker<'_>) -> Json {
    let word = maker.word();
    let token = typed(maker.random, &word);
    // A number beyond all is none in our reading.
    if matches!(&token, Json::Token(token) if token.parse::<f64>().is_ok_and(f64::is_infinite)) {
        null()
    } else {
        token
    }
}

/// `$.root.name.field`, the name in one of the ways in which it can be written.
fn path(random: &mut Rng, root: &str, name: &str, field: &str) -> String {
    let is_simple = name.chars().next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_' || !c.is_ascii())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || !c.is_ascii());
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
    format!("$.{root}{name}{}{field}", if field.is_empty() { "" } else { "." })
}

fn once_char(random: &mut Rng, c: char) -> bool {
    u32::from(c) < 0xd800 && once_in(random, 8)
}
