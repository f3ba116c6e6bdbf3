//! Compiles one condition of a document to the typed test that the evaluator runs.

use remora_snapshot::model::{Comparand, Comparison, Members, Test};

use super::python;
use super::regex::Patterns;
use crate::document::{Condition, ConditionValue, list};

/// A test, or the reason why the condition has none and is false.
pub(super) type Compiled = Result<Test, String>;

const OPERATORS: &str = "EQUAL, NOT_EQUAL, GREATER_THAN, GREATER_THAN_INCLUSIVE, LESS_THAN, LESS_THAN_INCLUSIVE, CONTAINS, NOT_CONTAINS, \
                         REGEX, MODULO, IN, IS_SET, IS_NOT_SET, PERCENTAGE_SPLIT";

/// Returns true if `name` is one of Flagsmith's operators.
pub(super) fn is_operator(name: &str) -> bool {
    OPERATORS.split(", ").any(|operator| operator == name)
}

/// Returns the test that the condition applies to its property.
///
/// # Errors
/// The value can never match, or Flagsmith's engine raises on it. The condition is then false. The message never
/// contains the value, which may be personal.
pub(super) fn test(condition: &Condition, patterns: &mut Patterns) -> Compiled {
    let text = match &condition.value {
        ConditionValue::Null => None,
        ConditionValue::Text(text) => Some(text.as_str()),
        ConditionValue::List(_) if condition.operator == "IN" => None,
        ConditionValue::List(_) => {
            return Err("its value is a list, which only IN can have".to_owned());
        }
    };
    match condition.operator.as_str() {
        "EQUAL" => Ok(Test::Compare(Comparison::Equal, comparand(text))),
        "NOT_EQUAL" => Ok(Test::Compare(Comparison::NotEqual, comparand(text))),
        "GREATER_THAN" => Ok(Test::Compare(Comparison::Greater, comparand(text))),
        "GREATER_THAN_INCLUSIVE" => Ok(Test::Compare(Comparison::GreaterOrEqual, comparand(text))),
        "LESS_THAN" => Ok(Test::Compare(Comparison::Less, comparand(text))),
        "LESS_THAN_INCLUSIVE" => Ok(Test::Compare(Comparison::LessOrEqual, comparand(text))),
        "CONTAINS" => Ok(Test::Contains(comparand(text))),
        "NOT_CONTAINS" => {
            Ok(Test::NotContains(Comparand { text: text.unwrap_or("None").to_owned(), ..Comparand::default() }))
        }
        "REGEX" => patterns
            .compile(text.unwrap_or("None"))
            .map(Test::Matches)
            .map_err(|problem| format!("the pattern {problem}")),
        "MODULO" => modulo(text),
        "IN" => members(&condition.value),
        "IS_SET" => Ok(Test::IsSet),
        "IS_NOT_SET" => Ok(Test::IsNotSet),
        "PERCENTAGE_SPLIT" => percentage(text),
        _ => Err(format!("the operator is unknown; operators are {OPERATORS}")),
    }
}

/// Returns the value in each type that the left side may have. Python prints a missing one as `None`.
fn comparand(text: Option<&str>) -> Comparand {
    let Some(full) = text else {
        return Comparand { boolean: true, text: "None".to_owned(), ..Comparand::default() };
    };
    let version = full.strip_suffix(":semver");
    Comparand {
        boolean: full != "False" && full != "false",
        integer: python::int(full),
        float: python::float(full),
        text: version.unwrap_or(full).to_owned(),
        semver: version.is_some(),
    }
}

/// Parses `divisor|remainder`.
fn modulo(text: Option<&str>) -> Compiled {
    let parts = text.and_then(|text| text.split_once('|'));
    match parts.map(|(divisor, remainder)| (python::float(divisor), python::float(remainder))) {
        Some((Some(0.0), Some(_))) => Err("its value divides by zero; write divisor|remainder, such as 2|0".to_owned()),
        Some((Some(divisor), Some(remainder))) if !divisor.is_nan() && !remainder.is_nan() => {
            Ok(Test::Modulo { divisor, remainder })
        }
        _ => Err("its value can match nothing; write divisor|remainder, such as 2|0".to_owned()),
    }
}

/// Parses the members of `IN`: a list, a JSON array, or text between commas. Members are not trimmed.
fn members(value: &ConditionValue) -> Compiled {
    match value {
        ConditionValue::Null => Err("it has no value; write members between commas, or a JSON array".to_owned()),
        ConditionValue::List(members) => Ok(Test::In(members.clone())),
        ConditionValue::Text(text) => {
            let array = text.starts_with('[').then(|| list(text)).and_then(Result::ok);
            let members = array.map_or_else(|| Members::of(text.split(',')), Ok);
            members.map(Test::In).map_err(|problem| problem.to_string())
        }
    }
}

fn percentage(text: Option<&str>) -> Compiled {
    match text.map(python::float) {
        None => Err("it has no value; write a percentage, such as 12.5".to_owned()),
        Some(Some(threshold)) if !threshold.is_nan() => Ok(Test::Percentage { threshold }),
        Some(_) => Err("its value can match nothing; write a percentage, such as 12.5".to_owned()),
    }
}
