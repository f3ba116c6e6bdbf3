//! Comparison of both engines: a case takes the way of every document, and the result is compared with Flagsmith's
//! answer.

use remora_compile::document;
use remora_compile::prune::{Rules, prune};
use remora_compile::{Compiled, EnvironmentFlags, Options, compile};
use remora_snapshot::{RequestState, Role, Snapshot, TraitValue};

use super::json::Json;
use super::oracle::{Answer, Flag, OfIdentity};

/// Compiles the document as it is served.
pub(crate) fn compiled(document: &str, rules: &Rules, mode: EnvironmentFlags) -> Result<Compiled, String> {
    let document = document::parse(document.as_bytes()).map_err(|error| error.to_string())?;
    let options =
        Options { environment: "differential", server_keys: &[], environment_flags: mode, ..Options::default() };
    compile(&prune(document, rules), &options).map_err(|error| error.to_string())
}

pub(crate) fn snapshot(compiled: &Compiled) -> Snapshot<&[u8]> {
    let mut files = compiled.files.iter().map(|file| file.bytes.as_slice());
    let mut snapshot = Snapshot::read(files.next().unwrap()).unwrap();
    files.for_each(|file| snapshot.attach(file).unwrap());
    snapshot
}

/// Sets the request to the identity of a case.
pub(crate) fn identify(snapshot: &Snapshot<&[u8]>, request: &mut RequestState, identity: &Json) {
    request.clear();
    snapshot.identify(request, identity.get("identifier").and_then(Json::text).unwrap());
    let Some(Json::Map(traits)) = identity.get("traits") else { panic!("{identity} has no traits") };
    for (name, value) in traits {
        let value = match value {
            Json::Text(text) => TraitValue::String(text),
            Json::Token(token) => match token.as_str() {
                "null" => TraitValue::Null,
                "true" => TraitValue::Bool(true),
                "false" => TraitValue::Bool(false),
                _ if token.contains(['.', 'e', 'E']) => TraitValue::Float(token.parse().unwrap()),
                _ => TraitValue::Integer(token),
            },
            other => panic!("a trait is {other}"),
        };
        snapshot.set_trait(request, name, value);
    }
}

/// Returns Remora's evaluation of each flag.
pub(crate) fn flags(snapshot: &Snapshot<&[u8]>, request: &mut RequestState) -> Vec<Flag> {
    let flag = |told: remora_snapshot::Explanation| {
        (told.feature, told.enabled, told.value, told.reason, told.variant.unwrap_or_else(|| "null".to_owned()))
    };
    snapshot.explain(request).into_iter().map(flag).collect()
}

/// Returns the percentage of an identity's key in a split with this seed, as it is printed.
pub(crate) fn percentage(seed: &str, key: &str) -> String {
    let seed = Json::from(seed);
    let document = format!(
        r#"{{"api_key":"","project":{{}},"feature_states":[{{"feature":{{"id":1,"name":"f"}},"enabled":true,"featurestate_uuid":{seed},
            "multivariate_feature_state_values":[{{"id":1,"percentage_allocation":1,"multivariate_feature_option":{{}}}}]}}]}}"#
    );
    let compiled = compiled(&document, &Rules::default(), EnvironmentFlags::Plain).unwrap();
    let snapshot = snapshot(&compiled);
    let mut request = RequestState::default();
    snapshot.identify(&mut request, "x");
    snapshot.set_key(&mut request, key);
    format!("{:?}", snapshot.explain(&mut request)[0].percentage.unwrap())
}

/// Comparison of the answers to a case.
#[derive(Debug)]
pub(crate) struct Compared {
    pub(crate) differences: Vec<String>,
    /// Number of identities whose evaluation exhausted Remora's budget of steps. Their answers are not compared.
    pub(crate) undecided: usize,
}

/// Compares Remora's answers with those of the engine. Returns `Err` if the case is invalid, because Remora then serves
/// nothing.
pub(crate) fn compare(case: &Json, theirs: &Answer) -> Result<Compared, String> {
    let document = case.get("document").unwrap().to_string();
    let compiled_all = compiled(&document, &Rules::default(), EnvironmentFlags::AllSegments)?;
    // A finding may announce a difference. Without one the finding names a property that is no valid path, which is a trait's
    // name for both.
    let is_announced = compiled_all
        .findings
        .iter()
        .any(|finding| finding.message.contains("the rule type") || finding.message.contains("the JSONPath"));
    let findings = format!("{:?}", compiled_all.findings);
    let all = snapshot(&compiled_all);
    let mut differences = Vec::new();
    let mut differ = |what: String, ours: &dyn std::fmt::Debug, theirs: &dyn std::fmt::Debug| {
        differences.push(format!("{what}\n  ours   {ours:?}\n  theirs {theirs:?}"));
    };
    let mut request = RequestState::default();
    let mut undecided = 0;
    for (identity, OfIdentity { flags: wanted, bodies }) in
        case.get("identities").unwrap().items().iter().zip(&theirs.identities)
    {
        identify(&all, &mut request, identity);
        let told = flags(&all, &mut request);
        if all.overrun(&request).is_some() {
            undecided += 1;
            continue;
        }
        if told.len() != wanted.len() {
            differ(format!("{identity}: flags"), &told, wanted);
        }
        for (ours, theirs) in told.iter().zip(wanted).filter(|(ours, theirs)| ours != theirs) {
            differ(identity.to_string(), ours, theirs);
        }
        for (role, wanted) in [Role::Client, Role::Server].into_iter().zip(bodies) {
            let mut body = Vec::new();
            all.write_flags(&mut request, role, &mut body);
            if body != wanted.as_bytes() {
                differ(format!("{identity}: the body for {role:?}"), &String::from_utf8_lossy(&body), wanted);
            }
        }
    }
    let mut modes = vec![(compiled_all, &theirs.all)];
    if case.get("other_modes") != Some(&false.into()) {
        modes.push((compiled(&document, &Rules::default(), EnvironmentFlags::Plain)?, &theirs.plain));
        modes.push((compiled(&document, &Rules::default(), EnvironmentFlags::IdentityFree)?, &theirs.identity_free));
    }
    for (compiled, wanted) in &modes {
        let snapshot = snapshot(compiled);
        for (role, wanted) in [Role::Client, Role::Server].into_iter().zip(*wanted) {
            let body = String::from_utf8_lossy(snapshot.flags(role));
            if body != *wanted {
                differ(format!("without an identity, for {role:?}"), &body, wanted);
            }
        }
    }
    if is_announced && !differences.is_empty() { Err(findings) } else { Ok(Compared { differences, undecided }) }
}
