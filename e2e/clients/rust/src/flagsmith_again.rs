//! Reads flags through Flagsmith's SDK for Rust, and again for each further line of input, with the same client and its
//! connections.

use flagsmith::{Flagsmith, FlagsmithOptions};
use serde_json::{Value, json};

fn main() {
    let mut lines = std::io::stdin().lines().map(|line| line.expect("standard input"));
    let plan: Value = serde_json::from_str(&lines.next().expect("a line with what to ask")).expect("the line is JSON");
    let api_url = std::env::var("FLAGSMITH_API_URL").expect("FLAGSMITH_API_URL is set");
    let key = plan["key"].as_str().expect("a key").to_owned();
    let flagsmith = Flagsmith::new(key, FlagsmithOptions { api_url, ..FlagsmithOptions::default() });
    let identifier = plan["subjects"]["nobody special"]["identifier"].as_str().expect("an identifier");
    loop {
        let flags = flagsmith.get_identity_flags(identifier, None, None).expect("an identity's flags");
        let flag = flags.get_flag("max_items").expect("a flag");
        println!("answers {}", json!({"flag": [flag.enabled, flag.value]}));
        if lines.next().is_none() {
            return;
        }
    }
}
