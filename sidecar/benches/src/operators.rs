//! An environment for each operator: one segment, of conditions of this operator alone, which all hold.

use remora_snapshot::{Snapshot, Subject, TraitValue};

use crate::profile::CLIENT_KEY;

/// Flagsmith's fourteen.
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

/// How many conditions the segment has, each of a trait of its own. Even ones are texts, odd ones numbers, where the
/// operator has both.
const CONDITIONS: usize = 32;

/// The names of traits.
fn property(number: usize) -> String {
    format!("trait_{number:02}")
}

/// A condition's value, with which it holds for the trait of this number.
fn operand(operator: &str, number: usize) -> (String, String) {
    let text = |number: usize| format!("value-{number:02}");
    let even = number.is_multiple_of(2);
    // Texts compare as texts, numbers as numbers.
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
        // Nobody is above it, and below 100 it has to be computed.
        "PERCENTAGE_SPLIT" => (property(number), "99.99".to_owned()),
        "IS_NOT_SET" => (format!("absent_{number:02}"), String::new()),
        _ => (property(number), String::new()),
    }
}

/// The document of an operator's environment.
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

/// The body of `identities/` with the same traits.
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

/// Gives a subject the traits that the conditions hold for.
pub fn give_operands<B: AsRef<[u8]>>(snapshot: &Snapshot<B>, subject: &mut Subject) {
    for number in 0..CONDITIONS {
        let (text, digits) = (format!("value-{number:02}"), (number + 100).to_string());
        let value = if number.is_multiple_of(2) { TraitValue::String(&text) } else { TraitValue::Integer(&digits) };
        snapshot.set_trait(subject, &property(number), value);
    }
}
