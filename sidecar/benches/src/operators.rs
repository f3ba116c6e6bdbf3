//! Environments for each operator: one segment whose conditions all use this operator, and all match.

use remora_snapshot::{RequestState, Snapshot, TraitValue};

use crate::profile::CLIENT_KEY;

/// Flagsmith's fourteen operators.
pub const OPERATORS: [&str; 14] = [
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
    "PERCENTAGE_SPLIT",
    "IS_SET",
    "IS_NOT_SET",
];

/// Number of conditions of the segment, each on a trait of its own. If the operator accepts both, even conditions
/// compare text, and odd ones numbers.
const CONDITIONS: usize = 32;

/// Returns the name of a trait.
fn property(number: usize) -> String {
    format!("trait_{number:02}")
}

/// Returns the trait and the value of a condition that matches the trait of this number.
fn operand(operator: &str, number: usize) -> (String, String) {
    let text = |number: usize| format!("value-{number:02}");
    let even = number.is_multiple_of(2);
    // Even numbers compare text, odd ones numbers.
    let (less, same, more) = if even {
        (text(number.saturating_sub(1)), text(number), text(number + 1))
    } else {
        ((number + 99).to_string(), (number + 100).to_string(), (number + 101).to_string())
    };
    let texts = property(number & !1);
    let numbers = property(number | 1);
    match operator {
        "EQUAL" | "GREATER_THAN_INCLUSIVE" | "LESS_THAN_INCLUSIVE" => (property(number), same),
        "NOT_EQUAL" | "LESS_THAN" => (property(number), more),
        "GREATER_THAN" if number == 0 => (property(0), "value".to_owned()),
        "GREATER_THAN" => (property(number), less),
        "CONTAINS" => (texts, format!("e-{:02}", number & !1)),
        "NOT_CONTAINS" => (texts, format!("e-{:02}", number + 50)),
        "REGEX" => (texts, format!("(value|other)-[0-9]{{1,{}}}$", number + 2)),
        "MODULO" => (numbers, format!("{}|{}", number + 2, ((number | 1) + 100) % (number + 2))),
        "IN" => (property(number), format!("one,two,three,{same},four,five")),
        // Nearly every identity passes 99.99, and below 100 the hash has to be computed.
        "PERCENTAGE_SPLIT" => (property(number), "99.99".to_owned()),
        "IS_NOT_SET" => (format!("absent_{number:02}"), String::new()),
        _ => (property(number), String::new()),
    }
}

/// Writes the document of an operator's environment.
#[must_use]
pub fn document(operator: &str) -> String {
    let conditions: Vec<String> = (0..CONDITIONS)
        .map(|number| {
            let (property, value) = operand(operator, number);
            format!(r#"{{"operator":"{operator}","value":"{value}","property_":"{property}"}}"#)
        })
        .collect();
    let state = |value: &str| {
        format!(
            r#"{{"feature":{{"id":1,"name":"flag","type":"STANDARD"}},"enabled":true,"django_id":1,"feature_state_value":"{value}"}}"#
        )
    };
    format!(
        r#"{{"api_key":"{CLIENT_KEY}","project":{{"segments":[{{"id":1,"name":"all","rules":[{{"type":"ALL","conditions":[{}]}}],"feature_states":[{}]}}]}},"feature_states":[{}]}}"#,
        conditions.join(","),
        state("matched"),
        state("default"),
    )
}

/// Writes a body of `identities/` with these traits.
#[must_use]
pub fn identity_body(identifier: &str) -> String {
    let traits: Vec<String> = (0..CONDITIONS)
        .map(|number| {
            let value =
                if number.is_multiple_of(2) { format!(r#""value-{number:02}""#) } else { (number + 100).to_string() };
            format!(r#"{{"trait_key": "{}", "trait_value": {value}}}"#, property(number))
        })
        .collect();
    format!(r#"{{"identifier": "{identifier}", "traits": [{}]}}"#, traits.join(", "))
}

/// Sets the traits of an identity that the conditions match.
pub fn give_operands<B: AsRef<[u8]>>(snapshot: &Snapshot<B>, request: &mut RequestState) {
    for number in 0..CONDITIONS {
        let (text, digits) = (format!("value-{number:02}"), (number + 100).to_string());
        let value = if number.is_multiple_of(2) { TraitValue::String(&text) } else { TraitValue::Integer(&digits) };
        snapshot.set_trait(request, &property(number), value);
    }
}
