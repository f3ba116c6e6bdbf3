//! Recorded answers of Flagsmith's API, and the answer that each case expects of Remora.
//!
//! A set is a folder with `environment.json`, `keys.json`, the cases in `flagsmith-api/`, and optionally `known.json`,
//! which names the cases that differ on purpose and their expected answers.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

/// Name of the set in the conformance folder itself.
const FIRST: &str = "first";

/// Sets that `second/` must contain.
const SECOND: [&str; 2] = ["quirks", "versioned"];

/// A set of recorded answers.
pub(crate) struct Set {
    /// Name for messages.
    pub(crate) name: String,
    /// Folder of the set.
    pub(crate) folder: PathBuf,
    pub(crate) cases: Vec<Case>,
    /// True if flags are compared in their order. The API has an order of its own where features are versioned.
    is_ordered: bool,
}

impl Set {
    /// True if the answer is the expected one.
    pub(crate) fn agrees(&self, ours: &Expected, case: &Case) -> bool {
        match (ours, &case.expected) {
            (Expected::Flags(ours), Expected::Flags(theirs)) if !self.is_ordered => {
                let sorted = |flags: &[Value]| {
                    let mut flags: Vec<String> = flags.iter().map(ToString::to_string).collect();
                    flags.sort();
                    flags
                };
                sorted(ours) == sorted(theirs)
            }
            (ours, theirs) => ours == theirs,
        }
    }
}

/// One recorded answer.
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) is_server: bool,
    pub(crate) request: Request,
    pub(crate) expected: Expected,
    /// True if the expected answer differs from the recorded one on purpose.
    pub(crate) is_known: bool,
    /// Variants that the API reported, by flag.
    #[allow(dead_code)] // only answers of the evaluation itself name variants
    pub(crate) variants: BTreeMap<String, Value>,
}

/// A request of the API.
pub(crate) enum Request {
    /// `GET flags/`.
    Flags,
    /// `GET flags/?feature=`.
    Flag(String),
    /// `GET identities/?identifier=`.
    Identity(String),
    /// `POST identities/` with this body.
    Body(Value),
}

/// The expected answer.
#[derive(Debug, PartialEq)]
pub(crate) enum Expected {
    /// Only a status.
    Status(u64),
    /// One flag, as `[name, enabled, value]`.
    Flag(Value),
    /// All flags, as `[name, enabled, value]`, in order.
    Flags(Vec<Value>),
}

/// Reads the set of the recorded answers that are part of the project.
pub(crate) fn committed_sets(folder: &Path) -> Vec<Set> {
    vec![set(FIRST, folder)]
}

/// Reads all sets of a conformance folder: the folder itself, and all folders in `second/`.
pub(crate) fn all_sets(folder: &Path) -> Vec<Set> {
    let mut sets = vec![set(FIRST, folder)];
    let second = folder.join("second");
    let mut folders: Vec<PathBuf> = entries(&second).into_iter().filter(|path| path.is_dir()).collect();
    folders.sort();
    for name in SECOND {
        assert!(folders.iter().any(|path| path.ends_with(name)), "{} lacks {name}", second.display());
    }
    sets.extend(folders.iter().map(|path| set(&path.file_name().unwrap().to_string_lossy(), path)));
    sets
}

fn set(name: &str, folder: &Path) -> Set {
    let known = folder.join("known.json");
    let mut known = if known.exists() { read(&known) } else { json!({}) };
    let known = known.as_object_mut().unwrap();
    let mut files = entries(&folder.join("flagsmith-api"));
    files.sort();
    let case = |path: &PathBuf| {
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let known = known.remove(&name);
        case(name, &read(path), known.as_ref())
    };
    let cases: Vec<Case> = files.iter().map(case).collect();
    assert!(!cases.is_empty(), "{} has no cases", folder.display());
    assert!(known.is_empty(), "{}: known.json names cases that do not exist: {:?}", folder.display(), known.keys());
    Set { name: name.to_owned(), folder: folder.to_owned(), cases, is_ordered: name == FIRST }
}

fn case(name: String, recorded: &Value, known: Option<&Value>) -> Case {
    let request = &recorded["request"];
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let query = &request["query"];
    let request = match (text(&query["identifier"]), text(&query["feature"])) {
        (Some(identifier), None) => Request::Identity(identifier),
        (None, Some(feature)) => Request::Flag(feature),
        (None, None) if request.is_null() => Request::Flags,
        (None, None) if request.get("traits").is_some() => Request::Body(request.clone()),
        _ => panic!("{name}: the request is of no known kind: {request}"),
    };
    let flags = || recorded["flags"].as_array().into_iter().flatten();
    let mut expected = match (recorded.get("flags"), recorded.get("flag")) {
        _ if recorded["status"] != 200 => Expected::Status(recorded["status"].as_u64().unwrap()),
        (Some(_), None) => Expected::Flags(flags().map(flag).collect()),
        (None, Some(one)) => Expected::Flag(flag(one)),
        _ => panic!("{name}: the answer is of no known kind"),
    };
    if let Some(known) = known {
        let before = std::mem::replace(&mut expected, Expected::Status(0));
        expected = deliberate(&name, &before, known);
        assert_ne!(expected, before, "{name}: known.json expects what the API answers");
    }
    Case {
        is_server: name.ends_with("_server"),
        is_known: known.is_some(),
        variants: flags().map(|flag| (text(&flag["name"]).unwrap(), flag["variant"].clone())).collect(),
        name,
        request,
        expected,
    }
}

/// Returns the answer that differs on purpose.
fn deliberate(name: &str, recorded: &Expected, known: &Value) -> Expected {
    assert_eq!(known["documented"], true, "{name}: the difference is not documented");
    if let Some(answer) = known["answer"].as_array() {
        return Expected::Flags(answer.clone());
    }
    if let Some(status) = known["status"].as_u64() {
        return Expected::Status(status);
    }
    let Expected::Flags(flags) = recorded else { panic!("{name}: known.json expects flags") };
    let expected = flags.iter().filter_map(|flag| match known["flags"].get(flag[0].as_str()?) {
        None => Some(flag.clone()),
        Some(Value::Null) => None,
        Some(other) => Some(json!([flag[0], other[0], other[1]])),
    });
    Expected::Flags(expected.collect())
}

fn flag(recorded: &Value) -> Value {
    json!([recorded["name"], recorded["enabled"], recorded["value"]])
}

/// Returns `[name, enabled, value]` of a flag object.
pub(crate) fn told(flag: &Value) -> Value {
    json!([flag["feature"]["name"], flag["enabled"], flag["feature_state_value"]])
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    entries.map(|entry| entry.unwrap().path()).collect()
}

pub(crate) fn read(path: &Path) -> Value {
    let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
