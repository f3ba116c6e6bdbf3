//! Turns JSON into a CEL expression, and replaces the placeholders of a template pod by the expressions that compute
//! them.

use serde_json::Value;

use super::text;

/// A placeholder in a template pod, and the expression that computes its value.
#[derive(Clone, Copy)]
pub(super) enum Mark {
    /// A placeholder text: a whole string or a part of one.
    Text(&'static str, &'static str),
    /// A placeholder number, alone or in a string. A number less than [`NEAR`] above it becomes the expression plus the
    /// difference.
    Number(u64, &'static str),
}

/// A number at this distance or more above a placeholder stays a literal.
const NEAR: u64 = 100;

/// Returns the expression of a JSON value.
pub(super) fn value(of: &Value, marks: &[Mark]) -> String {
    match of {
        Value::String(string) => self::string(string, marks),
        Value::Number(number) => {
            number.as_u64().and_then(|number| sum(number, marks)).unwrap_or_else(|| number.to_string())
        }
        Value::Array(items) => {
            let alike = items.len() == 1 || items.iter().all(Value::is_string);
            let items: Vec<_> = items.iter().map(|item| any(value(item, marks), alike)).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Object(members) => {
            let alike = members.values().all(Value::is_string);
            let members: Vec<_> = members
                .iter()
                .map(|(key, member)| format!("{}: {}", text(key), any(value(member, marks), alike)))
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
pub(super) fn string(of: &str, marks: &[Mark]) -> String {
    let mut pieces = Vec::new();
    let (mut plain, mut rest) = (String::new(), of);
    while let Some(first) = rest.chars().next() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len()).max(first.len_utf8());
        let text_mark = marks.iter().find_map(|mark| match mark {
            Mark::Text(mark, expression) if rest.starts_with(mark) => Some((mark.len(), (*expression).to_owned())),
            _ => None,
        });
        let (head, _) = rest.split_at(digits);
        let number_mark =
            || head.parse().ok().and_then(|number| sum(number, marks)).map(|sum| (digits, format!("string({sum})")));
        match text_mark.or_else(number_mark) {
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

fn sum(number: u64, marks: &[Mark]) -> Option<String> {
    marks.iter().find_map(|mark| match mark {
        Mark::Number(mark, expression) if (*mark..mark + NEAR).contains(&number) => Some(match number - mark {
            0 => (*expression).to_owned(),
            more => format!("{expression} + {more}"),
        }),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const MARKS: [Mark; 2] = [Mark::Text("shop", "variables.name"), Mark::Number(40_000, "variables.port")];

    #[test]
    fn marks_become_expressions_wherever_they_are() {
        assert_eq!(
            string("http://127.0.0.1:40000/api", &MARKS),
            "'http://127.0.0.1:' + string(variables.port) + '/api'"
        );
        assert_eq!(string("shop-40001", &MARKS), "variables.name + '-' + string(variables.port + 1)");
        assert_eq!(string("", &MARKS), "''");
        assert_eq!(string("it's \\", &MARKS), r"'it\'s \\'");
        assert_eq!(string("ä4777", &MARKS), "'ä4777'");
        assert_eq!(value(&json!(40_001), &MARKS), "variables.port + 1");
        assert_eq!(value(&json!(39_999), &MARKS), "39999");
    }

    #[test]
    fn only_what_is_alike_keeps_its_type() {
        assert_eq!(value(&json!({"a": "b", "c": "shop"}), &MARKS), "{'a': 'b', 'c': variables.name}");
        assert_eq!(value(&json!({"a": "b", "c": 1}), &MARKS), "{'a': dyn('b'), 'c': dyn(1)}");
        assert_eq!(value(&json!(["a", {"b": [true]}]), &MARKS), "[dyn('a'), dyn({'b': dyn([true])})]");
    }
}
