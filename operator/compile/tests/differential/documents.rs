//! Random environments and identities: small, so that all features of the format can occur together.

use std::ops::Range;

use fastrand::Rng;

use super::json::{Json, map, null};
use super::patterns::Pattern;
use super::values::{self, once_in, pick, scalar, typed};

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
pub(super) const TRAITS: &[&str] = &[
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
    "a-b",
    "😀",
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

/// Environment under construction.
pub(crate) struct Maker<'r> {
    pub(super) random: &'r mut Rng,
    pub(super) key: String,
    pub(super) features: Vec<String>,
    pub(super) segments: Vec<i64>,
    pub(super) identifiers: Vec<String>,
    /// Texts that occur both in conditions and in traits.
    pub(super) vocabulary: Vec<String>,
    pub(super) patterns: Vec<Pattern>,
    pub(super) depends_on_flags: bool,
}

/// Returns a document and this many identities to evaluate.
pub(crate) fn case(random: &mut Rng, identities: Range<usize>) -> Json {
    let key = pick(random, &["e", "env", "größe", "7", "QjgYur4LQTwe5HpvbvhpzK"]).to_owned();
    let mut features = distinct(random, FEATURES, 7);
    if once_in(random, 40) {
        features.extend((0..random.usize(60..140)).map(|number| format!("n{number}")));
    }
    let segments =
        (0..random.usize(..7)).map(|_| if once_in(random, 8) { random.i64(..) } else { random.i64(0..9) }).collect();
    let mut identifiers = distinct(random, IDENTIFIERS, 6);
    identifiers.push(format!("user_{}", random.u32(..100_000)));
    let mut vocabulary: Vec<String> = (0..random.usize(3..9)).map(|_| values::text(random)).collect();
    vocabulary.push(identifiers[0].clone());
    let depends_on_flags = once_in(random, 3);
    let mut maker =
        Maker { random, key, features, segments, identifiers, vocabulary, patterns: Vec::new(), depends_on_flags };
    let document = if once_in(maker.random, 6) { maker.of_patterns() } else { maker.document() };
    let identities: Vec<Json> = (0..maker.random.usize(identities)).map(|_| maker.identity()).collect();
    // The other modes without an identity take as long to compile as everything else.
    let other_modes = once_in(maker.random, 8);
    map([("document", document), ("identities", identities.into()), ("other_modes", other_modes.into())])
}

/// Returns include and exclude globs, of which some match.
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

    /// Returns a document with patterns only: each of a few segments tests a single trait, because the subject is the
    /// matching and not the served values.
    fn of_patterns(&mut self) -> Json {
        self.features = (0..self.random.usize(3..9)).map(|number| format!("f{number}")).collect();
        self.identifiers = vec!["user_1".to_owned()];
        let mut states = Vec::new();
        let mut segments = Vec::new();
        for feature in 0..self.features.len() {
            states.push(self.plain_state(feature, false));
            let pattern = Pattern::new(self.random, true);
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
        // Each text is matched against all patterns, so the length limit is the lowest of all patterns: nested loops on
        // longer texts exceed their step budget.
        let longest = self.patterns.iter().map(|pattern| pattern.longest).min().unwrap_or_default();
        self.patterns.iter_mut().for_each(|pattern| pattern.longest = longest);
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
            ("api_key", self.key.as_str().into()),
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

    pub(super) fn word(&mut self) -> String {
        self.vocabulary[self.random.usize(..self.vocabulary.len())].clone()
    }

    fn feature_of(&self, feature: usize, kind: &str) -> Json {
        map([
            ("id", (feature as i64 + 1).into()),
            ("name", self.features[feature].as_str().into()),
            ("type", kind.into()),
        ])
    }

    /// Returns a feature's state, in the environment or in a segment.
    pub(super) fn state(&mut self, feature: usize, of_segment: bool) -> Json {
        let kind = pick(self.random, &["STANDARD", "MULTIVARIATE"]);
        let uuid = format!("uuid-{}", self.random.u8(..));
        let mut seed = uuid.clone();
        let mut state = map([
            ("feature", self.feature_of(feature, kind)),
            ("enabled", self.random.bool().into()),
            ("featurestate_uuid", uuid.as_str().into()),
            ("feature_state_value", if once_in(self.random, 3) { typed_word(self) } else { scalar(self.random) }),
        ]);
        if self.random.bool() {
            let special = once_in(self.random, 4).then(|| pick(self.random, &["0", "null", "-5"]).to_owned());
            let id = special.unwrap_or_else(|| self.random.u16(1..).to_string());
            if id.parse() != Ok(0_i64) && id != "null" {
                seed.clone_from(&id);
            }
            state.set("django_id", Json::Token(id));
        }
        let count = if once_in(self.random, 3) { self.random.usize(..5) } else { 0 };
        let variants: Vec<Json> = (0..count).map(|_| self.variant(&seed)).collect();
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

    fn variant(&mut self, seed: &str) -> Json {
        let weight = match self.random.u8(..6) {
            0 => pick(
                self.random,
                &["0", "100", "0.0", "100.0", "33.333", "1e1", "-5", "0.01", "150", "50.0", "12.50", "1E-3"],
            )
            .to_owned(),
            1 => format!("{}", self.random.f64() * 60.0),
            2 => self.exact(seed),
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

    fn identity_override(&mut self) -> Json {
        let identifier = self.identifiers[self.random.usize(..self.identifiers.len())].clone();
        let flags: Vec<Json> = (0..self.random.usize(..4))
            .map(|_| {
                let feature = self.random.usize(..=self.features.len());
                let (name, id) =
                    self.features.get(feature).map_or(("unknown", 999), |name| (name.as_str(), feature as i64 + 1));
                let value = pick(self.random, &["1", "true", "1.0", "-1", "-2", "null", "\"a\"", "0", "false", "0.0"]);
                let mut flag = map([
                    ("feature", map([("id", id.into()), ("name", name.into()), ("type", "STANDARD".into())])),
                    ("enabled", self.random.bool().into()),
                    ("featurestate_uuid", "x".into()),
                    (
                        "feature_state_value",
                        if self.random.bool() { super::json::read(value) } else { scalar(self.random) },
                    ),
                ]);
                if once_in(self.random, 4) {
                    let seed = if self.random.bool() { "x".to_owned() } else { self.random.u16(1..).to_string() };
                    if seed != "x" {
                        flag.set("django_id", Json::Token(seed.clone()));
                    }
                    let variants: Vec<Json> = (0..self.random.usize(..4)).map(|_| self.variant(&seed)).collect();
                    flag.set("multivariate_feature_state_values", variants.into());
                }
                flag
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

    /// Returns the exact percentage of one of the identities in a split.
    pub(super) fn exact(&mut self, seed: &str) -> String {
        let identifier = &self.identifiers[self.random.usize(..self.identifiers.len())];
        super::compare::percentage(seed, &format!("{}_{identifier}", self.key))
    }

    fn sample(&mut self) -> Json {
        let number = self.random.usize(..self.patterns.len());
        self.patterns[number].sample(self.random).as_str().into()
    }
}

pub(super) fn typed_word(maker: &mut Maker<'_>) -> Json {
    let word = maker.word();
    let token = typed(maker.random, &word);
    // Remora reads a number out of range as no number.
    if matches!(&token, Json::Token(token) if token.parse::<f64>().is_ok_and(f64::is_infinite)) {
        null()
    } else {
        token
    }
}
