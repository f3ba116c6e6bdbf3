//! Reads flags through Flagsmith's SDK for Rust, in remote evaluation. Reads one line of JSON, and prints one.

use flagsmith::flagsmith::models::{Flag, Flags, SDKTrait};
use flagsmith::{Flagsmith, FlagsmithOptions};
use flagsmith_flag_engine::types::{FlagsmithValue, FlagsmithValueType};
use serde_json::{Map, Value, json};

fn client(key: &str, options: FlagsmithOptions) -> Flagsmith {
    Flagsmith::new(key.to_owned(), options)
}

fn options() -> FlagsmithOptions {
    let api_url = std::env::var("FLAGSMITH_API_URL").expect("FLAGSMITH_API_URL is set");
    FlagsmithOptions { api_url, ..FlagsmithOptions::default() }
}

fn in_default(name: &str) -> Flag {
    let value = FlagsmithValue { value: format!("default of {name}"), value_type: FlagsmithValueType::String };
    Flag { value, is_default: true, feature_name: name.to_owned(), ..Flag::default() }
}

fn pair(flag: &Flag) -> Value {
    json!([flag.enabled, flag.value])
}

fn told(flag: &Flag) -> Value {
    json!([flag.enabled, flag.value, flag.is_default])
}

fn pairs(flags: &Flags) -> Value {
    Value::Object(flags.all_flags().iter().map(|flag| (flag.feature_name.clone(), pair(flag))).collect())
}

fn identity(flagsmith: &Flagsmith, subject: &Value) -> Flags {
    let transient = subject["transient"].as_bool();
    let traits = subject["traits"].as_object().cloned().unwrap_or_default().into_iter().map(|(name, value)| {
        let value = serde_json::from_value(value).expect("a trait's value is a scalar");
        SDKTrait::new_with_transient(name, value, transient.unwrap_or_default())
    });
    let identifier = subject["identifier"].as_str().expect("a subject has an identifier");
    flagsmith.get_identity_flags(identifier, Some(traits.collect()), transient).expect("an identity's flags")
}

/// Returns what an application gets if no flags can be fetched: with a default handler, and without one.
fn failing(key: &str, api_url: &str) -> Value {
    let options = || FlagsmithOptions { api_url: api_url.to_owned(), ..options() };
    let handled = client(key, FlagsmithOptions { default_flag_handler: Some(in_default), ..options() });
    let bare = client(key, options());
    let flag = |flags: Flags| told(&flags.get_flag("max_items").expect("the handler's flag"));
    json!({
        "environment": flag(handled.get_environment_flags().expect("the handler's flags")),
        "identity": flag(handled.get_identity_flags("guest-10", None, None).expect("the handler's flags")),
        "environment_without": bare.get_environment_flags().err().map(|error| format!("{:?}", error.kind)),
        "identity_without": bare.get_identity_flags("guest-10", None, None).err().map(|error| format!("{:?}", error.kind)),
    })
}

fn main() {
    let line = std::io::stdin().lines().next().expect("a line with what to ask").expect("standard input");
    let plan: Value = serde_json::from_str(&line).expect("the line is JSON");
    let key = plan["key"].as_str().expect("a key");

    let flagsmith = client(key, options());
    let environment = flagsmith.get_environment_flags().expect("the environment's flags");
    let one = environment.get_flag("max_items").expect("a flag");
    let identities: Map<String, Value> = plan["subjects"]
        .as_object()
        .expect("subjects")
        .iter()
        .map(|(name, subject)| (name.clone(), pairs(&identity(&flagsmith, subject))))
        .collect();
    let mut anonymous = plan["anonymous"].clone();
    anonymous["identifier"] = json!("");

    let counted = client(key, FlagsmithOptions { enable_analytics: true, ..options() });
    let flags = counted.get_identity_flags("guest-2", None, None).expect("an identity's flags");
    let enabled = flags.is_feature_enabled("search_ranking").expect("a flag");
    let counted_value = json!([enabled, flags.get_feature_value_as_string("search_ranking").expect("a flag")]);
    // The SDK sends the counts when the client and its flags are dropped, on a thread that a caller cannot wait for.
    drop((counted, flags));

    let handled = client(key, FlagsmithOptions { default_flag_handler: Some(in_default), ..options() });
    let handled = handled.get_environment_flags().expect("the environment's flags");
    let answers = json!({
        "environment": pairs(&environment),
        "one": [one.feature_id, one.feature_name, one.enabled, one.value_as_i64(), one.is_default],
        "enabled": environment.is_feature_enabled("dark_mode").expect("a flag"),
        "value": environment.get_feature_value_as_string("surge_pricing").expect("a flag"),
        "identities": identities,
        "anonymous": pairs(&identity(&flagsmith, &anonymous)),
        "unknown": told(&handled.get_flag("unheard_of").expect("the handler's flag")),
        "unknown_without": environment.get_flag("unheard_of").err().map(|error| format!("{:?}", error.kind)),
        "wrong_key": failing("harbour-client-key-of-another", &options().api_url),
        "server_down": failing(key, &format!("{}/api/v1/", plan["nobody"].as_str().expect("an address"))),
        "analytics": counted_value,
    });
    println!("answers {answers}");
    // The test ends this program when the counts have arrived.
    let _end = std::io::stdin().lines().next();
}
