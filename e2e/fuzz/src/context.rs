//! Requests to evaluate: identities and traits for which the conditions of a document are likely to differ.

use remora_compile::document::{ConditionValue, Document, Rule};
use remora_snapshot::{RequestState, Snapshot, TraitValue};

/// Largest number of traits in a context.
const MOST_TRAITS: usize = 24;

/// Identity and traits of one request.
#[derive(Debug, Clone, Default)]
pub(crate) struct Context {
    /// `None` requests the environment's flags.
    pub(crate) identifier: Option<String>,
    pub(crate) traits: Vec<(String, Value)>,
}

/// Value of a trait.
#[derive(Debug, Clone)]
pub(crate) enum Value {
    Null,
    Bool(bool),
    Integer(String),
    Float(f64),
    Text(String),
}

impl Value {
    fn as_trait(&self) -> TraitValue<'_> {
        match self {
            Value::Null => TraitValue::Null,
            Value::Bool(value) => TraitValue::Bool(*value),
            Value::Integer(digits) => TraitValue::Integer(digits),
            Value::Float(value) => TraitValue::Float(*value),
            Value::Text(text) => TraitValue::String(text),
        }
    }

    /// Returns the boolean, null or number that the text denotes in JSON or Python. Returns any other text with an `a`
    /// appended.
    fn typed(text: &str) -> Value {
        match text {
            "true" | "True" => Value::Bool(true),
            "false" | "False" => Value::Bool(false),
            "null" | "None" => Value::Null,
            _ if is_integer(text) => Value::Integer(text.to_owned()),
            _ => match text.parse::<f64>() {
                Ok(value) if value.is_finite() => Value::Float(value),
                _ => Value::Text(format!("{text}a")),
            },
        }
    }
}

/// True for integers as JSON writes them.
fn is_integer(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let is_plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_plain && digits.len() <= 4300 && (digits == "0" || !digits.starts_with('0'))
}

impl Context {
    /// Sets the request to this identity and these traits.
    pub(crate) fn apply<B: AsRef<[u8]>>(&self, snapshot: &Snapshot<B>, subject: &mut RequestState) {
        subject.clear();
        if let Some(identifier) = &self.identifier {
            snapshot.identify(subject, identifier);
        }
        for (name, value) in &self.traits {
            snapshot.set_trait(subject, name, value.as_trait());
        }
    }
}

/// Returns contexts that follow from the conditions and identities of a document.
pub(crate) fn suggested(document: &Document) -> Vec<Context> {
    let mut pairs = Vec::new();
    for segment in &document.project.segments {
        collect(&segment.rules, &mut pairs);
    }
    let texts = pairs.iter().map(|(name, text)| (name.clone(), Value::Text(text.clone()))).collect();
    let typed = pairs.iter().map(|(name, text)| (name.clone(), Value::typed(text))).collect();
    let overridden = document.identity_overrides.first().map(|identity| identity.identifier.clone());
    vec![
        Context::default(),
        Context { identifier: Some("somebody".to_owned()), traits: texts },
        Context { identifier: Some(overridden.unwrap_or_default()), traits: typed },
        Context { identifier: Some("31".to_owned()), traits: Vec::new() },
    ]
}

fn collect(rules: &[Rule], pairs: &mut Vec<(String, String)>) {
    for rule in rules {
        for condition in &rule.conditions {
            if pairs.len() >= MOST_TRAITS {
                return;
            }
            let value = match &condition.value {
                ConditionValue::Null => "None",
                ConditionValue::Text(text) => text.as_str(),
                ConditionValue::List(members) => members.iter().next().unwrap_or_default(),
            };
            let value = match condition.operator.as_str() {
                "MODULO" => value.split_once('|').map_or(value, |(_, remainder)| remainder),
                "IN" => value.split(',').next().unwrap_or_default(),
                _ => value,
            };
            let value = value.strip_suffix(":semver").unwrap_or(value);
            pairs.push((condition.property.clone(), value.to_owned()));
        }
        collect(&rule.rules, pairs);
    }
}
