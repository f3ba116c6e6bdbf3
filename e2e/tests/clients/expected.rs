//! Expected answers of every client: `clients/expected.json`, written by hand and compared with Flagsmith's own engine.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::sidecar::Sidecar;

/// Kind of key that a client uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Client,
    Server,
}

/// Enabled state and value of each flag, by name.
pub(crate) type Flags = BTreeMap<String, Value>;

/// Flags of the environment, and of each subject.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Answers {
    pub(crate) environment: Flags,
    pub(crate) subjects: BTreeMap<String, Flags>,
    /// Flags of a subject without an identifier but with traits; `None` if a client does not support that request.
    pub(crate) anonymous: Option<Flags>,
}

pub(crate) struct Expected(Value);

/// Flag, its type, the default in the code, and the subject.
pub(crate) struct Question {
    pub(crate) asked: Value,
    answer: Value,
    unless: Value,
}

impl Question {
    /// Returns the expected answer of a provider. It may differ from other providers' answers for a stated reason.
    pub(crate) fn answer(&self, who: &str) -> &Value {
        self.unless.get(who).map_or(&self.answer, |unless| &unless["answer"])
    }
}

impl Expected {
    pub(crate) fn read() -> Expected {
        Expected(serde_json::from_str(include_str!("../../clients/expected.json")).expect("expected.json is JSON"))
    }

    pub(crate) fn key(&self, role: Role) -> &str {
        let key = match role {
            Role::Client => "client_key",
            Role::Server => "server_key",
        };
        self.0[key].as_str().expect("a key")
    }

    /// Returns the plan for clients: the whole file without the answers.
    pub(crate) fn plan(&self, role: Role) -> Value {
        let mut subjects = self.0["subjects"].clone();
        let mut anonymous = self.0["anonymous"].clone();
        for subject in subjects.as_object_mut().unwrap().values_mut().chain([&mut anonymous]) {
            subject.as_object_mut().unwrap().remove("differs");
        }
        json!({"key": self.key(role), "subjects": subjects, "anonymous": anonymous})
    }

    pub(crate) fn answers(&self, role: Role) -> Answers {
        let subjects = self.0["subjects"].as_object().unwrap().iter();
        Answers {
            environment: self.flags(role, &json!({})),
            subjects: subjects.map(|(name, subject)| (name.clone(), self.flags(role, &subject["differs"]))).collect(),
            anonymous: Some(self.flags(role, &self.0["anonymous"]["differs"])),
        }
    }

    /// Returns the named list of questions for OFREP providers.
    pub(crate) fn questions(&self, list: &str) -> Vec<Question> {
        let question = |row: &Value| {
            let mut asked = row.clone();
            let mut take = |member: &str| asked.as_object_mut().unwrap().remove(member).unwrap_or_default();
            Question { answer: take("answer"), unless: take("unless"), asked }
        };
        self.0[list].as_array().expect("a list of questions").iter().map(question).collect()
    }

    fn flags(&self, role: Role, differs: &Value) -> Flags {
        let mut flags = flags(&self.0["environment"]);
        let other = self::flags(differs);
        assert!(other.keys().all(|name| flags.contains_key(name)), "{differs} names a flag that is not there");
        flags.extend(other);
        if role == Role::Client {
            for name in self.0["server_only"].as_array().unwrap() {
                flags.remove(name.as_str().unwrap()).expect("a server-only flag is a flag");
            }
        }
        flags
    }
}

/// Parses the flags of one request, as clients print them.
pub(crate) fn flags(printed: &Value) -> Flags {
    let printed = printed.as_object().unwrap_or_else(|| panic!("these are no flags: {printed}"));
    printed.iter().map(|(name, flag)| (name.clone(), flag.clone())).collect()
}

impl Answers {
    /// Parses the answers that a client printed.
    pub(crate) fn printed(answers: &Value) -> Answers {
        let subjects = answers["identities"].as_object().unwrap_or_else(|| panic!("no identities: {answers}"));
        Answers {
            environment: flags(&answers["environment"]),
            subjects: subjects.iter().map(|(name, subject)| (name.clone(), flags(subject))).collect(),
            anonymous: Some(&answers["anonymous"]).filter(|answer| !answer.is_null()).map(flags),
        }
    }

    /// Returns the sidecar's answers to plain requests.
    pub(crate) async fn over_http(sidecar: &Sidecar, expected: &Expected, role: Role) -> Answers {
        let headers = [("x-environment-key", expected.key(role))];
        let plan = expected.plan(role);
        let identities = async |subject: &Value| {
            let traits = subject["traits"].as_object().cloned().unwrap_or_default();
            let traits: Vec<Value> =
                traits.iter().map(|(key, value)| json!({"trait_key": key, "trait_value": value})).collect();
            let body = json!({"identifier": subject["identifier"], "traits": traits});
            let answer = sidecar.ask("/api/v1/identities/", &headers, Some(&body)).await;
            assert_eq!(answer["identifier"], subject["identifier"]);
            assert_eq!(answer["traits"], body["traits"]);
            listed(&answer["flags"])
        };
        let mut subjects = BTreeMap::new();
        for (name, subject) in plan["subjects"].as_object().unwrap() {
            subjects.insert(name.clone(), identities(subject).await);
        }
        Answers {
            environment: listed(&sidecar.ask("/api/v1/flags/", &headers, None).await),
            subjects,
            anonymous: Some(identities(&plan["anonymous"]).await),
        }
    }

    /// Returns the same answers with renamed flags.
    pub(crate) fn renamed(&self, name: impl Fn(&str) -> String) -> Answers {
        let rename = |flags: &Flags| flags.iter().map(|(flag, answer)| (name(flag), answer.clone())).collect();
        Answers {
            environment: rename(&self.environment),
            subjects: self.subjects.iter().map(|(subject, flags)| (subject.clone(), rename(flags))).collect(),
            anonymous: self.anonymous.as_ref().map(rename),
        }
    }

    /// Fails with a list of all flags that differ.
    pub(crate) fn assert_equal(&self, expected: &Answers) {
        let mut differences = String::new();
        let mut compare = |whose: &str, ours: Option<&Flags>, theirs: Option<&Flags>| {
            let names: BTreeSet<&String> = ours.into_iter().chain(theirs).flat_map(BTreeMap::keys).collect();
            for flag in names {
                let [ours, theirs] = [ours, theirs].map(|flags| flags.and_then(|flags| flags.get(flag)));
                if ours != theirs {
                    let print = |flag: Option<&Value>| flag.map_or_else(|| "missing".to_owned(), Value::to_string);
                    let (ours, theirs) = (print(ours), print(theirs));
                    writeln!(differences, "  {whose}: {flag} is {ours}, and should be {theirs}").unwrap();
                }
            }
        };
        compare("environment", Some(&self.environment), Some(&expected.environment));
        compare("anonymous", self.anonymous.as_ref(), expected.anonymous.as_ref());
        let names: BTreeSet<&String> = self.subjects.keys().chain(expected.subjects.keys()).collect();
        for name in names {
            compare(name, self.subjects.get(name), expected.subjects.get(name));
        }
        assert!(differences.is_empty(), "these flags are wrong:\n{differences}");
        assert_eq!(self, expected);
    }
}

/// Parses flags as Flagsmith's API lists them.
fn listed(list: &Value) -> Flags {
    let list = list.as_array().unwrap_or_else(|| panic!("no list of flags: {list}"));
    let pair = |flag: &Value| {
        let name = flag["feature"]["name"].as_str().unwrap().to_owned();
        (name, json!([flag["enabled"], flag["feature_state_value"]]))
    };
    let flags: Flags = list.iter().map(pair).collect();
    assert_eq!(flags.len(), list.len(), "every flag is there once");
    flags
}
