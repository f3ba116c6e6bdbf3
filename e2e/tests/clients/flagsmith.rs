//! Flagsmith's SDKs, in remote and in local evaluation.

use serde_json::{Value, json};

use crate::client::Client;
use crate::expected::{Answers, Expected, Role};
use crate::sidecar::Sidecar;

/// Runs a client with a sidecar. Its flags must equal the expected flags and the flags of plain requests.
async fn answers_of(path: &str, role: Role, name: impl Fn(&str) -> String) -> Value {
    let expected = Expected::read();
    let sidecar = Sidecar::start(&expected).await;
    let over_http = Answers::over_http(&sidecar, &expected, role).await;
    over_http.assert_equal(&expected.answers(role));

    let before = sidecar.answers("identities", "2xx").await;
    let client = Client::run(path, Some(&sidecar), expected.plan(role)).await;
    // The sidecar counts the evaluations that the client reports; no answer contains them.
    sidecar.await_answer("analytics", "2xx").await;
    let answers = client.finish().await;
    let asked = sidecar.answers("identities", "2xx").await - before;
    assert!(asked > over_http.subjects.len() as u64, "{path} asked for {asked} identities");
    let printed = Answers::printed(&answers);
    let mut wanted = over_http.renamed(name);
    if printed.anonymous.is_none() {
        wanted.anonymous = None;
    }
    printed.assert_equal(&wanted);
    sidecar.stop().await;
    answers
}

fn same(name: &str) -> String {
    name.to_owned()
}

#[tokio::test]
async fn expected_answers_equal_those_of_engine() {
    let expected = Expected::read();
    let mut plan = expected.plan(Role::Server);
    plan["document"] = crate::sidecar::document().to_str().unwrap().into();
    let client = Client::run("python/flagsmith_offline.py", None, plan).await;
    Answers::printed(&client.finish().await).assert_equal(&expected.answers(Role::Server));
}

/// Runs a client in local evaluation, which fetches the document and sends no other request.
async fn local_answers_of(path: &str, differ: impl FnOnce(&mut Answers)) -> Value {
    let expected = Expected::read();
    let sidecar = Sidecar::start(&expected).await;
    let client = Client::run(path, Some(&sidecar), expected.plan(Role::Server)).await;
    let answers = client.finish().await;
    assert!(sidecar.answers("environment_document", "2xx").await > 0, "{path} fetched no document");
    assert_eq!(sidecar.answers("identities", "2xx").await + sidecar.answers("flags", "2xx").await, 0);
    let mut wanted = expected.answers(Role::Server);
    let printed = Answers::printed(&answers);
    if printed.anonymous.is_none() {
        wanted.anonymous = None;
    }
    differ(&mut wanted);
    printed.assert_equal(&wanted);
    sidecar.stop().await;
    answers
}

#[tokio::test]
async fn python_gets_expected_flags_in_local_evaluation() {
    let answers = local_answers_of("python/flagsmith_local.py", |_| ()).await;
    assert_eq!(answers["segments"], json!(["A third of everybody", "Business plans"]));
    let document = std::fs::read(crate::sidecar::document()).unwrap();
    let mut document: Value = serde_json::from_slice(&document).unwrap();
    // Numbers replace the UUIDs that Flagsmith generates anew for each answer.
    for (number, identity) in document["identity_overrides"].as_array_mut().unwrap().iter_mut().enumerate() {
        if let Some(uuid) = identity.get_mut("identity_uuid") {
            *uuid = format!("00000000-0000-8000-8000-{:012x}", number + 1).into();
        }
    }
    assert_eq!(answers["document"], document, "all of it is there, known or not");
}

#[tokio::test]
async fn node_gets_expected_flags_in_local_evaluation() {
    // This SDK's engine finds a pattern anywhere; Flagsmith's API and Remora find it only at the start.
    let differ = |wanted: &mut Answers| {
        let flags = wanted.subjects.get_mut("pattern not at the start").expect("a subject");
        flags.insert("Gift Cards".to_owned(), json!([true, "wallet"]));
    };
    local_answers_of("node/flagsmith_local.js", differ).await;
}

#[tokio::test]
async fn java_gets_expected_flags_in_local_evaluation() {
    let differ = |wanted: &mut Answers| {
        let mut differs = |subject: &str, flag: &str, answer: Value| {
            wanted.subjects.get_mut(subject).expect("a subject").insert(flag.to_owned(), answer);
        };
        // This SDK's engine also finds a pattern anywhere, and treats a trait without a value as set.
        differs("pattern not at the start", "Gift Cards", json!([true, "wallet"]));
        differs("null", "consent_banner", json!([true, "short"]));
        // The SDK hashes another key for identities with overrides: they are in other parts of a percentage split.
        differs("override of a split", "new_navigation", json!([false, null]));
    };
    local_answers_of("java/flagsmith/Local.java", differ).await;
}

#[tokio::test]
async fn go_gets_expected_flags_in_local_evaluation() {
    let differ = |wanted: &mut Answers| {
        let mut differs = |subject: &str, flag: &str, answer: Value| {
            wanted.subjects.get_mut(subject).expect("a subject").insert(flag.to_owned(), answer);
        };
        // This SDK's engine also finds a pattern anywhere, and treats a trait without a value as set.
        differs("pattern not at the start", "Gift Cards", json!([true, "wallet"]));
        differs("null", "consent_banner", json!([true, "short"]));
        // The SDK hashes another key for identities with overrides: they are in other parts of a percentage split.
        differs("override of a split", "new_navigation", json!([false, null]));
        // For variants, the SDK hashes the identifier without the environment's key: identities get other variants.
        let variants: [(&str, &[&str]); 3] = [
            ("bm25", &["in the other split", "override"]),
            (
                "embeddings",
                &[
                    "string",
                    "string in another case",
                    "integer",
                    "integer too small",
                    "integer as text",
                    "negative integer",
                    "null",
                    "not null",
                ],
            ),
            (
                "both",
                &[
                    "in a split",
                    "true",
                    "false",
                    "version and pattern",
                    "older version",
                    "pattern not at the start",
                    "override beyond ASCII",
                ],
            ),
        ];
        for (value, subjects) in variants {
            subjects.iter().for_each(|subject| differs(subject, "search_ranking", json!([true, value])));
        }
    };
    local_answers_of("go/flagsmith_local", differ).await;
}

/// Representation of answers that differs between SDKs.
struct Manner {
    /// A negative number.
    negative: Value,
    /// Answer for an unknown flag, without a default handler.
    unknown: Value,
    /// Errors if flags cannot be fetched, without a default handler: for the environment, and for an identity.
    failures: [&'static str; 2],
}

const PYTHON: fn() -> Manner = || Manner {
    negative: json!(-1),
    unknown: json!("FlagsmithFeatureDoesNotExistError"),
    failures: ["FlagsmithAPIError"; 2],
};

/// Runs a server-side SDK and checks its results for single flags and for failures.
async fn is_served(path: &str, role: Role, manner: Manner) -> Value {
    let answers = answers_of(path, role, same).await;
    assert_eq!(answers["one"], json!([105, "max_items", true, 25, false]));
    assert_eq!((&answers["enabled"], &answers["value"]), (&json!(false), &manner.negative));
    assert_eq!(answers["unknown"], json!([false, "default of unheard_of", true]));
    assert_eq!(answers["unknown_without"], manner.unknown);
    let [environment, identity] = manner.failures;
    for failure in ["wrong_key", "server_down"] {
        assert_eq!(
            answers[failure],
            json!({
                "environment": [false, "default of max_items", true],
                "identity": [false, "default of max_items", true],
                "environment_without": environment,
                "identity_without": identity,
            }),
            "{failure}"
        );
    }
    assert_eq!(answers["analytics"], json!([true, "embeddings"]));
    answers
}

#[tokio::test]
async fn python_gets_expected_flags_with_client_key() {
    is_served("python/flagsmith_remote.py", Role::Client, PYTHON()).await;
}

#[tokio::test]
async fn python_gets_expected_flags_with_server_key() {
    is_served("python/flagsmith_remote.py", Role::Server, PYTHON()).await;
}

#[tokio::test]
async fn node_gets_expected_flags() {
    let manner = Manner {
        negative: json!(-1),
        // This SDK invents a flag.
        unknown: Value::Null,
        failures: [
            "getEnvironmentFlags failed and no default flag handler was provided",
            "getIdentityFlags failed and no default flag handler was provided",
        ],
    };
    let answers = is_served("node/flagsmith_nodejs.js", Role::Client, manner).await;
    assert_eq!(answers["anonymous_refused"], "`identifier` argument is missing or invalid.");
}

#[tokio::test]
async fn rust_gets_expected_flags() {
    let (negative, unknown) = (json!("-1"), json!("FlagsmithAPIError"));
    let manner = Manner { negative, unknown, failures: ["FlagsmithAPIError"; 2] };
    is_served("rust/flagsmith", Role::Client, manner).await;
}

#[tokio::test]
async fn java_gets_expected_flags() {
    let (negative, unknown) = (json!(-1), json!("FeatureNotFoundError"));
    let manner = Manner { negative, unknown, failures: ["FlagsmithApiError"; 2] };
    let answers = is_served("java/flagsmith/Remote.java", Role::Client, manner).await;
    assert_eq!(answers["anonymous_refused"], "FlagsmithApiError");
}

#[tokio::test]
async fn go_gets_expected_flags() {
    const ERROR: &str = "*flagsmith.FlagsmithClientError";
    let manner = || Manner { negative: json!(-1), unknown: json!(ERROR), failures: [ERROR; 2] };
    is_served("go/flagsmith", Role::Client, manner()).await;
    is_served("go/flagsmith", Role::Server, manner()).await;
}

#[tokio::test]
async fn browser_gets_expected_flags() {
    let name = |name: &str| name.to_lowercase().replace(' ', "_");
    let answers = answers_of("node/flagsmith_js.js", Role::Client, name).await;
    let anonymous = &Expected::read().plan(Role::Client)["anonymous"]["identifier"];
    assert_eq!(&answers["anonymous_is"], anonymous, "made from the traits, as Flagsmith makes it");
    // No identity, then an identity, then the identity with a trait, then no identity again.
    assert_eq!(answers["changing"], json!(["bm25", "embeddings", 100, "bm25", 25]));
    assert_eq!(answers["object"], json!({"perMinute": 120, "burst": {"size": 20}, "tiers": ["a", "b"]}));
    assert_eq!(answers["unknown"], json!([false, null]));
    assert_eq!(answers["unknown_with_default"], json!([true, "default"]));
    for failure in ["wrong_key", "server_down"] {
        let seen = json!({"default": [false, "default of max_items"], "failed": true, "told": true});
        assert_eq!(answers[failure], seen, "{failure}");
    }
    assert_eq!(answers["analytics"], json!([true, "embeddings"]));
}
