//! The same decision and the same plan as expressions of CEL, for a MutatingAdmissionPolicy: the API server then puts the
//! sidecar into pods by itself, and there is no webhook.
//!
//! What a pod gets is not written a second time. [`Plan`](super::Plan)s of specimen pods become expressions, each value of
//! the specimen replaced by what computes it for the pod at hand ([`lift`], [`specimen`]): whatever is added to a plan is in
//! the policy too. Grammars, refusals and resources are said again in CEL, out of the same constants and messages. Both are
//! held to the webhook by what the API server answers to the pods of `operator/tests/inject/`.
//!
//! A mutating policy can neither refuse nor warn, so validating ones stand beside it, over the same variables. They see the
//! pod as it became, which changes nothing: all that is decided is decided the same about an injected pod.

mod amounts;
mod decision;
mod lift;
mod operations;
mod specimen;
mod warnings;
mod wishes;

use serde::Serialize;

use super::{config::Config, layout::Layout};

/// The expressions of all policies.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Policy {
    /// What all of them are written with.
    pub variables: Vec<Variable>,
    /// What the patch is written with, besides.
    pub plan: Vec<Variable>,
    /// The patch: a list of JSON Patch operations, all of them `add`.
    pub patch: String,
    /// Which pods are refused.
    pub refusals: Vec<Validation>,
    /// Of what the author of a pod is warned.
    pub warnings: Vec<Validation>,
    /// How many objects with identity overrides a volume names.
    pub slots: usize,
}

/// An expression with a name, written with those before it.
#[derive(Debug, Serialize)]
pub struct Variable {
    name: String,
    expression: String,
}

/// What must be true of a pod.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Validation {
    expression: String,
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    message_expression: Option<String>,
    /// As the webhook says it.
    reason: &'static str,
}

impl Validation {
    fn new(expression: impl Into<String>, message: &str, message_expression: Option<String>) -> Validation {
        Validation {
            expression: expression.into(),
            message: message.to_owned(),
            message_expression,
            reason: "Forbidden",
        }
    }
}

/// A plan cannot be written as expressions.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A specimen gets no sidecar.
    #[error("a specimen of a pod is not injected")]
    Specimen,
    /// Of a list of the plan, several environments or the socket change more than what is put in at one place.
    #[error("the list {0} is not made of a fixed part, one for each environment and one for the socket")]
    List(&'static str),
    /// A member of the sidecar changes with something that it is not known to change with.
    #[error("{0} of the sidecar is not the same in all pods")]
    Member(String),
}

/// The policies of a configuration.
///
/// # Errors
///
/// When a plan has become something that is not understood here: a mistake of ours.
pub fn policy(config: &Config) -> Result<Policy, Error> {
    let specimens = specimen::Specimens::of(config)?;
    let mut variables = Variables::default();
    wishes::define(&mut variables);
    decision::define(&mut variables, &specimens)?;
    amounts::define(&mut variables);
    warnings::define(&mut variables);
    let mut plan = Variables::default();
    operations::define(&mut plan, &specimens)?;
    Ok(Policy {
        variables: variables.0,
        plan: plan.0,
        patch: operations::patch(&specimens),
        refusals: decision::refusals(),
        warnings: warnings::warnings(),
        slots: Layout::default().slots,
    })
}

#[derive(Default)]
struct Variables(Vec<Variable>);

impl Variables {
    fn define(&mut self, name: &str, expression: impl Into<String>) {
        self.0.push(Variable { name: name.to_owned(), expression: expression.into() });
    }
}

/// A string of CEL.
fn text(text: &str) -> String {
    format!("'{}'", text.replace('\\', r"\\").replace('\'', r"\'").replace('\n', r"\n"))
}

/// A list of strings.
fn texts<'a>(all: impl IntoIterator<Item = &'a str>) -> String {
    format!("[{}]", all.into_iter().map(text).collect::<Vec<_>>().join(", "))
}

/// What [`quote`](super::quote) makes of a string. Of what cannot be seen it has the bytes, where that one has the number
/// of the character: CEL does not know it.
fn quoted(value: &str) -> String {
    const HEXADECIMAL: &str = "'%x'.format([letter])";
    format!(
        r#"'"' + {value}.substring(0, size({value}) > 64 ? 64 : size({value})).split('').map(letter,
  letter in ['"', '\\'] ? '\\' + letter : letter.matches('^[ -~\\p{{L}}\\p{{N}}]$') ? letter
  : '\\u{{' + {HEXADECIMAL}.substring({HEXADECIMAL}.startsWith('0') ? 1 : 0) + '}}').join('')
  + (size({value}) > 64 ? '…"' : '"')"#
    )
}
