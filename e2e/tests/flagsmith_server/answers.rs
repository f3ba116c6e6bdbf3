//! Questions to a server and a sidecar, and the comparison of the answers.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::project::Project;

/// A request for flags.
pub(crate) struct Question {
    key: String,
    /// Body of a request to `identities/`. `None` asks `flags/`.
    identity: Option<Value>,
}

const IDENTIFIERS: [&str; 10] =
    ["ada", "grace", "guest-1", "guest-2", "guest-3", "guest-4", "guest-5", "guest-6", "7", "Zoë"];

/// Traits of identities, by name and value.
fn traits() -> [Value; 7] {
    [
        json!({}),
        json!({"plan": "pro"}),
        json!({"plan": "trial", "orders": 10}),
        json!({"orders": 9.5, "city": "Bergen "}),
        json!({"city": "Kiruna", "orders": "12"}),
        json!({"plan": "team", "city": "Narvik", "beta": true}),
        json!({"version": "2.1.0", "orders": 6}),
    ]
}

impl Question {
    /// Number of questions: flags and identities, with either key.
    pub(crate) const COUNT: usize = 2 * (1 + IDENTIFIERS.len() * 7);

    pub(crate) fn all(project: &Project) -> Vec<Question> {
        let mut questions = Vec::new();
        for key in [&project.client_key, &project.server_key] {
            questions.push(Question { key: key.clone(), identity: None });
            for identifier in IDENTIFIERS {
                for traits in traits() {
                    let traits: Vec<Value> = traits
                        .as_object()
                        .unwrap()
                        .iter()
                        .map(|(key, value)| json!({"trait_key": key, "trait_value": value}))
                        .collect();
                    // The server stores no trait of a transient request, so that the traits of one identity do not add
                    // up. The overrides of a stored identity apply all the same.
                    let body = json!({"identifier": identifier, "traits": traits, "transient": true});
                    questions.push(Question { key: key.clone(), identity: Some(body) });
                }
            }
        }
        questions
    }

    /// Returns the answer of the server with this base URL.
    pub(crate) async fn ask(&self, http: &reqwest::Client, url: &str) -> Value {
        let request = match &self.identity {
            Some(body) => http.post(format!("{url}identities/")).json(body),
            None => http.get(format!("{url}flags/")),
        };
        let response = request.header("X-Environment-Key", &self.key).send().await.unwrap();
        let (status, text) = (response.status(), response.text().await.unwrap());
        assert_eq!(status, 200, "{url}: {:?}: {text}", self.identity);
        serde_json::from_str(&text).unwrap()
    }
}

/// Returns enabled state, value and variant of each flag.
fn flags(answer: &Value) -> BTreeMap<String, [Value; 3]> {
    let list = answer["flags"].as_array().or(answer.as_array()).unwrap_or_else(|| panic!("no flags: {answer}"));
    let flag = |flag: &Value| {
        let name = flag["feature"]["name"].as_str().unwrap().to_owned();
        (name, [&flag["enabled"], &flag["feature_state_value"], &flag["variant"]].map(Value::clone))
    };
    list.iter().map(flag).collect()
}

/// Compares two answers. The variant counts only if both name one.
pub(crate) fn compare(question: &Question, theirs: &Value, ours: &Value) -> Vec<String> {
    let (theirs, ours) = (flags(theirs), flags(ours));
    let names: std::collections::BTreeSet<&String> = theirs.keys().chain(ours.keys()).collect();
    let differs = |name: &&String| match (theirs.get(*name), ours.get(*name)) {
        (Some([enabled, value, variant]), Some([our_enabled, our_value, our_variant])) => {
            let both = !variant.is_null() && !our_variant.is_null();
            enabled != our_enabled || value != our_value || (both && variant != our_variant)
        }
        _ => true,
    };
    let differing = names.into_iter().filter(differs);
    let subject = question.identity.as_ref().map_or("flags/".to_owned(), Value::to_string);
    differing.map(|name| format!("{subject}: {name}: {:?}, ours {:?}", theirs.get(name), ours.get(name))).collect()
}
