//! Generates the decision and the plan as CEL expressions for a MutatingAdmissionPolicy. With the policy, the API
//! server injects the sidecar itself, and no webhook is needed.
//!
//! The additions to a pod are not written a second time. The generator makes plans of template pods
//! and turns them into expressions: each placeholder value becomes the expression that computes the value for the pod
//! in the request ([`to_cel`], [`template`]). The policy therefore contains everything that is added to a plan. Grammars,
//! refusals and resources are written again in CEL, from the same constants and messages. Tests compare the API
//! server's answers to the pods of `operator/tests/inject/` under the policy with the webhook's answers.
//!
//! A mutating policy can neither deny nor warn, so validating policies with the same variables do that. They see the
//! pod after its injection. The result is the same, because every decision about an injected pod equals the decision
//! about the original.

mod conditions;
mod decision;
mod operations;
mod options;
mod resources;
mod template;
mod to_cel;
mod warnings;

use serde::Serialize;

use super::{config::Config, defaults::DefaultTexts, layout::Layout};

/// The CEL expressions of all policies.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Policy {
    /// Variables that all policies use.
    pub variables: Vec<Variable>,
    /// Variables of the sidecar's resources, for the patch and the warnings.
    pub resources: Vec<Variable>,
    /// Further variables that only the patch uses.
    pub plan: Vec<Variable>,
    /// Condition of the policy that changes pods: false for a pod that has every addition.
    pub incomplete: Condition,
    /// The patch: a list of JSON Patch operations, all of them `add`.
    pub patch: String,
    /// Validations that deny a pod.
    pub refusals: Vec<Validation>,
    /// Further variables that only the warnings use.
    pub warning_variables: Vec<Variable>,
    /// Condition of the policy that warns: false for most pods that get no warning.
    pub may_get_warning: Condition,
    /// Validations that warn the author of a pod.
    pub warnings: Vec<Validation>,
    /// Number of objects for identity overrides that a volume names.
    pub slots: usize,
    /// Number of objects for parts of the core that a volume names in each set.
    pub core_parts: usize,
}

/// A named expression. It can use the variables before it.
#[derive(Debug, Serialize)]
pub struct Variable {
    name: String,
    expression: String,
}

/// A condition that selects pods, in addition to those of the registration.
#[derive(Debug, Serialize)]
pub struct Condition {
    name: &'static str,
    expression: String,
}

/// A condition that a pod must meet, and the message if it does not.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Validation {
    expression: String,
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    message_expression: Option<String>,
    /// Reason of the denial, the same as the webhook's.
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

/// Error: a plan cannot be turned into expressions.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A template pod is not injected.
    #[error("a template pod is not injected: report this bug")]
    TemplatePod,
    /// A list of the plan does not consist of fixed parts, one insertion per environment, one for the socket and one for
    /// a log in JSON.
    #[error(
        "the list {0} has parts other than fixed ones, one per environment, one for the socket and one for a log in JSON: report this bug"
    )]
    List(&'static str),
    /// A member of the sidecar differs between template pods, and the generator does not expect that.
    #[error("member {0} of the sidecar differs between template pods: report this bug")]
    Member(String),
}

/// Generates the policies for a configuration. `defaults` stand in place of those of the configuration, as parts of
/// string literals.
///
/// # Errors
///
/// Fails if a plan has a structure that the generator does not support. This is a bug in Remora.
pub fn policy(config: &Config, defaults: &DefaultTexts<'_>) -> Result<Policy, Error> {
    let templates = template::TemplatePlans::new(config)?;
    let mut variables = Variables::default();
    define_defaults(&mut variables, defaults);
    options::define(&mut variables);
    decision::define(&mut variables, &templates)?;
    // Each variable costs something in each evaluation of a policy that has it, also if nothing uses it.
    let mut resources = Variables::default();
    resources::define(&mut resources);
    let mut warning_variables = Variables::default();
    warnings::define(&mut warning_variables);
    let mut plan = Variables::default();
    operations::define(&mut plan, &templates)?;
    Ok(Policy {
        variables: variables.0,
        resources: resources.0,
        plan: plan.0,
        incomplete: conditions::incomplete(&templates)?,
        patch: operations::patch(&templates),
        refusals: decision::refusals(),
        warning_variables: warning_variables.0,
        may_get_warning: conditions::may_get_warning(),
        warnings: warnings::warnings(),
        slots: Layout::default().slots.overrides,
        core_parts: Layout::default().slots.core_parts,
    })
}

#[derive(Default)]
struct Variables(Vec<Variable>);

impl Variables {
    fn define(&mut self, name: &str, expression: impl Into<String>) {
        self.0.push(Variable { name: name.to_owned(), expression: expression.into() });
    }
}

/// Defines the options of pods without annotations.
fn define_defaults(variables: &mut Variables, defaults: &DefaultTexts<'_>) {
    for (name, default) in [
        ("chartAwait", defaults.wait),
        ("chartLogLevel", defaults.log_level),
        ("chartLogJson", defaults.log_json),
        ("chartCpuRequest", defaults.cpu_request),
        ("chartCpuLimit", defaults.cpu_limit),
        ("chartMemoryRequest", defaults.memory_request),
    ] {
        variables.define(name, text(default));
    }
}

/// Returns a CEL string literal.
fn text(text: &str) -> String {
    format!("'{}'", text.replace('\\', r"\\").replace('\'', r"\'").replace('\n', r"\n"))
}

/// Returns a CEL list of string literals.
fn texts<'a>(all: impl IntoIterator<Item = &'a str>) -> String {
    format!("[{}]", all.into_iter().map(text).collect::<Vec<_>>().join(", "))
}

/// Returns an expression that quotes a string like [`quote`](super::quote). Invisible characters show as their bytes
/// instead of their code point, which CEL cannot compute.
fn quoted(value: &str) -> String {
    const HEXADECIMAL: &str = "'%x'.format([letter])";
    format!(
        r#"'"' + {value}.substring(0, size({value}) > 64 ? 64 : size({value})).split('').map(letter,
  letter in ['"', '\\'] ? '\\' + letter : letter.matches('^[ -~\\p{{L}}\\p{{N}}]$') ? letter
  : '\\u{{' + {HEXADECIMAL}.substring({HEXADECIMAL}.startsWith('0') ? 1 : 0) + '}}').join('')
  + (size({value}) > 64 ? '…"' : '"')"#
    )
}
