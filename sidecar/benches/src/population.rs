//! A population: many different people who send requests, and segments that match some of them.
//!
//! One person who repeats a request finds every cache warm and every branch predicted. A population does not: people
//! differ in all traits, a third of them lack one, and they belong to different segments, so that they get a few
//! hundred different answers on `official` and more than a thousand on `medium`.

use remora_snapshot::{RequestState, Snapshot, TraitValue};

use crate::conditions::{Condition, condition};
use crate::profile::Profile;
use crate::random::Random;

/// Number of people in a population.
pub const PEOPLE: usize = 2_000;

const PLANS: [&str; 4] = ["free", "team", "scale-up", "enterprise"];
const COUNTRIES: [&str; 20] = [
    "US", "DE", "GB", "FR", "IN", "BR", "NL", "ES", "IT", "CA", "AU", "JP", "SE", "CH", "AT", "PL", "PT", "BE", "DK",
    "NO",
];
const FIRST_NAMES: [&str; 12] =
    ["jane", "amir", "li", "olga", "pedro", "sofia", "noah", "fatima", "kofi", "yuki", "ines", "tom"];
const LAST_NAMES: [&str; 12] =
    ["doe", "khan", "wang", "ivanova", "silva", "rossi", "schmidt", "haddad", "mensah", "sato", "costa", "miller"];
const DOMAINS: [&str; 8] = [
    "customers.example",
    "mail.example",
    "acme.example",
    "globex.example",
    "initech.example",
    "umbrella.example",
    "partners.example",
    "staff.example",
];

/// A person: an identifier, and traits as JSON tokens.
#[derive(Debug, Clone)]
pub struct Person {
    /// Identifier of the person.
    pub identifier: String,
    /// Names and JSON tokens of the traits.
    pub traits: Vec<(&'static str, String)>,
}

/// Returns the people of a profile. If the profile has identity overrides, one person in eight has some.
#[must_use]
pub fn people(profile: &Profile) -> Vec<Person> {
    let mut random = Random::new(0x9e09_1e5e);
    (0..PEOPLE).map(|number| person(profile, number, &mut random)).collect()
}

fn person(profile: &Profile, number: usize, random: &mut Random) -> Person {
    let own = profile.identities;
    let number =
        if own > 0 && number.is_multiple_of(8) { random.below(own) } else { 2_000_000 + random.below(1_000_000) };
    let text = |text: String| format!("\"{text}\"");
    let (first, last) = (random.below(FIRST_NAMES.len()), random.below(LAST_NAMES.len()));
    let name = [FIRST_NAMES.get(first), LAST_NAMES.get(last)].map(|name| name.copied().unwrap_or_default()).join(".");
    let email = format!("{name}+{}@{}", random.below(1_000), random.skewed(&DOMAINS));
    // Most people spend little, and few spend much.
    let spend = 20_000.0 * random.part().powi(4);
    let mut traits = vec![
        ("plan", text(random.skewed(&PLANS).to_owned())),
        ("country", text(random.skewed(&COUNTRIES).to_owned())),
        ("age", (16 + (random.below(40) + random.below(40))).to_string()),
        ("spend", format!("{spend:.1}")),
        ("beta", (random.below(5) == 0).to_string()),
        ("app_version", text(format!("3.{}.{}", random.below(15), random.below(10)))),
        ("email", text(email)),
        ("account", (1 + random.below(100_000)).to_string()),
    ];
    if random.below(3) == 0 {
        traits.remove(random.below(traits.len()));
    }
    Person { identifier: Profile::identifier(number), traits }
}

impl Person {
    /// Writes the body of `identities/` in Python's JSON format.
    #[must_use]
    pub fn identity_body(&self) -> String {
        let traits: Vec<String> = self
            .traits
            .iter()
            .map(|(key, value)| format!(r#"{{"trait_key": "{key}", "trait_value": {value}}}"#))
            .collect();
        format!(r#"{{"identifier": "{}", "traits": [{}]}}"#, self.identifier, traits.join(", "))
    }

    /// Sets this person's identifier and traits in an identity.
    pub fn give<B: AsRef<[u8]>>(&self, snapshot: &Snapshot<B>, identity: &mut RequestState) {
        for (key, token) in &self.traits {
            snapshot.set_trait(identity, key, value(token));
        }
        snapshot.identify(identity, &self.identifier);
    }
}

/// Converts a JSON token without escapes.
pub(crate) fn value(token: &str) -> TraitValue<'_> {
    match token.trim_matches('"') {
        text if text.len() < token.len() => TraitValue::String(text),
        "true" => TraitValue::Bool(true),
        "false" => TraitValue::Bool(false),
        digits if digits.contains('.') => TraitValue::Float(digits.parse().unwrap_or_default()),
        digits => TraitValue::Integer(digits),
    }
}

/// Returns the conditions of one segment: `count - 1` conditions that match most people, and one that matches some.
#[must_use]
pub fn conditions(segment: usize, count: usize) -> Vec<Condition> {
    let mut random = Random::new(0xc0de + segment as u64);
    let common = mostly(segment);
    let start = random.below(common.len());
    let verdict = sometimes(segment, &mut random);
    common.into_iter().cycle().skip(start).take(count.saturating_sub(1)).chain([verdict]).collect()
}

/// Returns conditions that each match most people. Their values differ between segments.
fn mostly(segment: usize) -> Vec<Condition> {
    let skipped = segment % COUNTRIES.len();
    let countries: Vec<&str> =
        COUNTRIES.iter().enumerate().filter(|(place, _)| *place != skipped).map(|(_, country)| *country).collect();
    vec![
        condition("NOT_EQUAL", "plan", format!("pilot-{segment}")),
        condition("IN", "country", countries.join(",")),
        condition("GREATER_THAN_INCLUSIVE", "age", (17 + segment % 4).to_string()),
        condition("LESS_THAN", "age", (85 - segment % 8).to_string()),
        condition("NOT_CONTAINS", "email", format!("@competitor-{segment}.")),
        condition("GREATER_THAN_INCLUSIVE", "app_version", format!("3.0.{}:semver", segment % 6)),
        condition("LESS_THAN_INCLUSIVE", "spend", (15_000 + segment).to_string()),
        condition("NOT_EQUAL", "country", format!("Z{segment}")),
        condition("REGEX", "email", format!(r"[a-z]+\.[a-z]+(\+[0-9]{{1,{}}})?@", 3 + segment % 4)),
        condition("IS_SET", "email", ""),
        condition("IN", "plan", format!("free,team,scale-up,enterprise,pilot-{segment}")),
        condition("IS_NOT_SET", &format!("banned_{segment}"), ""),
    ]
}

/// Returns a condition that matches some people.
fn sometimes(segment: usize, random: &mut Random) -> Condition {
    match segment % 6 {
        0 => condition("PERCENTAGE_SPLIT", "", (5 + random.below(30)).to_string()),
        1 => condition("EQUAL", "plan", PLANS.get(1 + segment % 3).copied().unwrap_or_default()),
        2 => condition("MODULO", "account", format!("{}|{}", 9 + segment % 20, segment % 9)),
        3 => condition("GREATER_THAN", "spend", (5_000 + 500 * random.below(10)).to_string()),
        4 => condition("CONTAINS", "email", DOMAINS.get(2 + random.below(6)).copied().unwrap_or_default()),
        _ => condition("EQUAL", "beta", "true"),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::profile::{POPULATED, POPULATED_MEDIUM};

    #[test]
    fn people_of_a_profile_are_different_and_the_same_in_every_run() {
        let bodies = |profile| people(profile).iter().map(Person::identity_body).collect::<Vec<_>>();
        let first = bodies(&POPULATED);
        assert_eq!(first, bodies(&POPULATED));
        assert!(first.iter().collect::<HashSet<_>>().len() > PEOPLE * 99 / 100);
        let lacking = people(&POPULATED).iter().filter(|person| person.traits.len() == 7).count();
        assert!((PEOPLE / 4..PEOPLE / 2).contains(&lacking), "{lacking}");
    }

    #[cfg(feature = "compile")]
    #[test]
    fn people_get_hundreds_of_answers_on_official_and_a_thousand_on_medium() -> anyhow::Result<()> {
        for (profile, few, many) in [(POPULATED, 200, 900), (POPULATED_MEDIUM, 700, 1_600)] {
            let profile = Profile { identities: 0, ..profile };
            let compiled =
                crate::prepared::compiled(&crate::document::write(&profile), remora_snapshot::files::MAX_FILE_BYTES)?;
            let core = compiled.files.into_iter().next().map(|file| file.bytes).unwrap_or_default();
            let snapshot = Snapshot::read(core)?;
            let answers: HashSet<Vec<u8>> = people(&profile)
                .iter()
                .map(|person| {
                    let (mut identity, mut answer) = (RequestState::default(), Vec::new());
                    person.give(&snapshot, &mut identity);
                    snapshot.write_flags(&mut identity, remora_snapshot::Role::Client, &mut answer);
                    answer
                })
                .collect();
            assert!((few..=many).contains(&answers.len()), "{}: {} answers", profile.name, answers.len());
        }
        Ok(())
    }
}
