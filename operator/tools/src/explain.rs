//! `remora-operator explain`: explains the value of each flag for one identity.

pub mod segments;

use std::io::Write;
use std::path::PathBuf;
use std::str::FromStr;

use remora_snapshot::{
    Decision, Explanation, Hash, MAX_STEPS, RequestState, SegmentExplanation, Snapshot, TraitValue, backtrack,
};

use crate::{directory, terminal::write_line};

/// Print the value of each flag for one identity, and the rule that decided it.
#[derive(Debug, clap::Args)]
pub struct Explain {
    /// Directory that `remora-operator compile` wrote, or a mounted snapshot volume.
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Environment to read. Required if the directory holds several environments.
    #[arg(long, value_name = "NAME")]
    environment: Option<String>,
    #[command(flatten)]
    identity: Identity,
    /// Name of a flag to print, with the requirements of each segment that overrides it (repeatable). Default: all flags,
    /// without the segments.
    #[arg(long, value_name = "NAME")]
    flag: Vec<String>,
}

/// Identity to evaluate flags for.
#[derive(Debug, Default, clap::Args)]
pub struct Identity {
    /// Identifier of the identity. Default: evaluate without an identity.
    #[arg(long)]
    identifier: Option<String>,
    /// Trait of the identity (repeatable). The value is read as JSON if it is a number, true, false, null (no trait) or
    /// a "quoted string", else as a string. Requires `--identifier`.
    #[arg(long = "trait", value_name = "KEY=VALUE")]
    traits: Vec<Trait>,
}

/// Explanations of flags.
#[derive(Debug)]
pub struct Explained {
    /// Sentence about undecided segments, if the evaluation used up its budget.
    pub overrun: Option<String>,
    /// The selected flags.
    pub flags: Vec<ExplainedFlag>,
}

/// Explanation of a flag.
#[derive(Debug)]
pub struct ExplainedFlag {
    /// The result and its source.
    pub result: Explanation,
    /// The segments that override the flag, strongest first. `None` if no flag was named.
    pub segments: Option<Vec<SegmentExplanation>>,
}

/// Reason why flags cannot be explained.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Traits need an identity.
    #[error("--trait needs an identity: set --identifier")]
    TraitWithoutIdentity,
    /// The snapshot has no flag of this name.
    #[error(
        "environment {environment:?} has no flag {flag:?}: `remora-operator inspect` or `kubectl remora flags` lists its flags"
    )]
    UnknownFlag {
        /// Name of the environment.
        environment: String,
        /// Name that was asked for.
        flag: String,
    },
}

/// Trait as it is written on the command line: `KEY=VALUE`.
#[derive(Debug, Clone)]
struct Trait {
    key: String,
    value: serde_json::Value,
}

impl FromStr for Trait {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (key, value) = text.split_once('=').ok_or("must be KEY=VALUE, for example plan=pro")?;
        let value = match serde_json::from_str(value) {
            Ok(value @ (serde_json::Value::Array(_) | serde_json::Value::Object(_))) => {
                return Err(format!("value {value} is not possible for a trait: use a string, a number or a boolean"));
            }
            Ok(value) => value,
            Err(_) => serde_json::Value::from(value),
        };
        Ok(Self { key: key.to_owned(), value })
    }
}

impl Explain {
    /// Writes the explanation of each selected flag to `out`.
    ///
    /// # Errors
    /// If the directory holds no snapshot, traits are given without an identifier, or the snapshot has no flag of that
    /// name.
    pub fn run(&self, out: &mut impl Write) -> anyhow::Result<()> {
        let snapshot = directory::read(&self.directory, self.environment.as_deref())?;
        let explained = explain(&snapshot, &self.identity, &self.flag)?;
        if let Some(overrun) = &explained.overrun {
            write_line(out, overrun)?;
        }
        for line in explained.flags.iter().flat_map(lines) {
            write_line(out, line)?;
        }
        Ok(())
    }
}

/// Explains the named flags for an identity, or all flags if none is named.
///
/// # Errors
/// If traits are given without an identifier, or the snapshot has no flag of a name.
pub fn explain(snapshot: &Snapshot<Vec<u8>>, identity: &Identity, flags: &[String]) -> Result<Explained, Error> {
    let mut request = RequestState::default();
    if let Some(identifier) = &identity.identifier {
        snapshot.identify(&mut request, identifier);
    } else if !identity.traits.is_empty() {
        return Err(Error::TraitWithoutIdentity);
    }
    for Trait { key, value } in &identity.traits {
        set(snapshot, &mut request, key, value);
    }
    let explanations = snapshot.explain(&mut request);
    let overrun = snapshot.overrun(&request).map(|overrun| {
        let first = match overrun.segment {
            Some(segment) => format!("segment {segment:?} was the first that it did not decide"),
            None => "it did not decide some segments or splits".to_owned(),
        };
        format!(
            "The evaluation took more than the {MAX_STEPS} steps of one request, or one search more than {}: {first}. \
             Segments that are not decided do not match, and a split gives its control value. \
             `remora-operator inspect` lists what can take so long.",
            backtrack::MAX_STEPS
        )
    });
    if let Some(flag) = flags.iter().find(|name| !explanations.iter().any(|e| e.feature == **name)) {
        let environment = snapshot.environment().to_owned();
        return Err(Error::UnknownFlag { environment, flag: flag.clone() });
    }
    let selected = explanations.into_iter().filter(|result| flags.is_empty() || flags.contains(&result.feature));
    let explained = selected.map(|result| {
        let segments = (!flags.is_empty()).then(|| snapshot.explain_segments(&mut request, &result.feature));
        ExplainedFlag { result, segments }
    });
    Ok(Explained { overrun, flags: explained.collect() })
}

fn set(snapshot: &Snapshot<Vec<u8>>, request: &mut RequestState, key: &str, value: &serde_json::Value) {
    use serde_json::Value;
    let token = value.to_string();
    let value = match value {
        Value::Bool(bool) => TraitValue::Bool(*bool),
        Value::String(text) => TraitValue::String(text),
        Value::Number(number) if number.is_f64() => number.as_f64().map_or(TraitValue::Null, TraitValue::Float),
        Value::Number(_) => TraitValue::Integer(&token),
        _ => TraitValue::Null,
    };
    snapshot.set_trait(request, key, value);
}

/// Describes the text and the digest behind a percentage.
fn hashed(hash: &Hash) -> String {
    format!("the percentage is {:.4}, from the MD5 {} of {:?}", hash.percentage, hash.md5, hash.text)
}

/// Describes an explanation in lines of text.
#[must_use]
pub fn lines(flag: &ExplainedFlag) -> Vec<String> {
    let ExplainedFlag { result, segments } = flag;
    let Explanation { feature, enabled, value, reason, variant, decision, percentage, hash, server_only } = result;
    let mut lines = vec![format!("{feature}: {}, {value}", if *enabled { "on" } else { "off" })];
    lines.push(match decision {
        Decision::Default => "  default: no segment override and no identity override applies".to_owned(),
        Decision::IdentityOverride => "  override of this identity".to_owned(),
        Decision::Segment { name, rank: 0 } => {
            format!("  override of segment {name:?}, which has the highest priority")
        }
        Decision::Segment { name, rank } => format!(
            "  override of segment {name:?}; {rank} overrides have a higher priority, and their segments do not match"
        ),
    });
    if let Some(percentage) = percentage {
        let variant = variant.as_deref().unwrap_or("a variant without a name");
        lines.push(format!("  split: the identity's percentage is {percentage:.4}, which selects {variant}"));
        lines.extend(hash.iter().map(|hash| format!("     {}", hashed(hash))));
    }
    lines.extend(segments.iter().flat_map(|segments| segments::lines(segments, decision)));
    if *server_only {
        lines.push("  visible with a server key only".to_owned());
    }
    lines.push(format!("  reason {reason}"));
    lines
}
