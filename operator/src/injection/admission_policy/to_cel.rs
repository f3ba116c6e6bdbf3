//! Turns JSON into a CEL expression, and replaces the placeholders of a template pod by the expressions that compute
//! them.

use serde_json::Value;

use super::text;

/// A placeholder in a template pod, and the expression that computes its value.
#[derive(Clone, Copy)]
pub(super) enum Placeholder {
    /// A placeholder text: a whole string or a part of one.
    Text(&'static str, &'static str),
    /// A placeholder number, alone or in a string. A number less than [`NEAR`] above it becomes the expression plus the
    /// difference.
    Number(u64, &'static str),
}

/// A number at this distance or more above a placeholder stays a literal.
const NEAR: u64 = 100;

/// Returns the expression of a JSON value.
pub(super) fn value(of: &Value, placeholders: &[Placeholder]) -> String {
    match of {
        Value::String(string) => self::string(string, placeholders),
        Value::Number(number) => {
            number.as_u64().and_then(|number| sum(number, placeholders)).unwrap_or_else(|| number.to_string())
        }
        Value::Array(items) => {
            let alike = items.len() == 1 || items.iter().all(Value::is_string);
            let items: Vec<_> = items.iter().map(|item| any(value(item, placeholders), alike)).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Object(members) => {
            let alike = members.values().all(Value::is_string);
            let members: Vec<_> = members
                .iter()
                .map(|(key, member)| format!("{}: {}", text(key), any(value(member, placeholders), alike)))
                .collect();
            format!("{{{}}}", members.join(", "))
        }
        Value::Bool(_) | Value::Null => of.to_string(),
    }
}

/// Wraps an item in `dyn`, unless all items have the same type: CEL's lists and maps need one type for all values.
fn any(expression: String, alike: bool) -> String {
    if alike { expression } else { format!("dyn({expression})") }
}

/// Returns the expression of a string as a sum of literals and expressions.
pub(super) fn string(of: &str, placeholders: &[Placeholder]) -> String {
    let mut pieces = Vec::new();
    let (mut plain, mut rest) = (String::new(), of);
    while let Some(first) = rest.chars().next() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len()).max(first.len_utf8());
        let text_placeholder = placeholders.iter().find_map(|placeholder| match placeholder {
            Placeholder::Text(token, expression) if rest.starts_with(token) => {
                Some((token.len(), (*expression).to_owned()))
            }
            _ => None,
        });
        let (head, _) = rest.split_at(digits);
        let number_placeholder = || {
            head.parse().ok().and_then(|number| sum(number, placeholders)).map(|sum| (digits, format!("string({sum})")))
        };
        match text_placeholder.or_else(number_placeholder) {
            Some((length, expression)) => {
                if !plain.is_empty() {
                    pieces.push(text(&std::mem::take(&mut plain)));
                }
                pieces.push(expression);
                rest = rest.split_at(length).1;
            }
            None => {
                plain.push_str(head);
                rest = rest.split_at(digits).1;
            }
        }
    }
    if !plain.is_empty() || pieces.is_empty() {
        pieces.push(text(&plain));
    }
    pieces.join(" + ")
}

fn sum(number: u64, placeholders: &[Placeholder]) -> Option<String> {
    placeholders.iter().find_map(|placeholder| match placeholder {
        Placeholder::Number(token, expression) if (*token..token + NEAR).contains(&number) => {
            Some(match number - token {
                0 => (*expression).to_owned(),
                more => format!("{expression} + {more}"),
            })
        }
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const PLACEHOLDERS: [Placeholder; 2] =
        [Placeholder::Text("shop", "variables.name"), Placeholder::Number(40_000, "variables.port")];

    #[test]
    fn string_or_number_with_placeholder_becomes_expression() {
        assert_eq!(
            string("http://127.0.0.1:40000/api", &PLACEHOLDERS),
            "'http://127.0.0.1:' + string(variables.port) + '/api'"
        );
        assert_eq!(string("shop-40001", &PLACEHOLDERS), "variables.name + '-' + string(variables.port + 1)");
        assert_eq!(string("", &PLACEHOLDERS), "''");
        assert_eq!(string("it's \\", &PLACEHOLDERS), r"'it\'s \\'");
        assert_eq!(string("ä4777", &PLACEHOLDERS), "'ä4777'");
        assert_eq!(value(&json!(40_001), &PLACEHOLDERS), "variables.port + 1");
        assert_eq!(value(&json!(39_999), &PLACEHOLDERS), "39999");
    }

    #[test]
    fn values_of_several_types_are_wrapped_in_dyn() {
        assert_eq!(value(&json!({"a": "b", "c": "shop"}), &PLACEHOLDERS), "{'a': 'b', 'c': variables.name}");
        assert_eq!(value(&json!({"a": "b", "c": 1}), &PLACEHOLDERS), "{'a': dyn('b'), 'c': dyn(1)}");
        assert_eq!(value(&json!(["a", {"b": [true]}]), &PLACEHOLDERS), "[dyn('a'), dyn({'b': dyn([true])})]");
    }
}
