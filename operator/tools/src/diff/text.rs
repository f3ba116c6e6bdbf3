//! Differences as lines of text.

use super::{Change, Differences, FlagChange, FlagState, IdentityChange, Outcome, SegmentChange};
use crate::{counted, shortened};

impl Differences {
    /// Describes each difference in one line, which starts with `+` (added), `-` (removed) or `~` (changed).
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if self.two_environments {
            lines.push("the revisions belong to two environments: their client keys differ".to_owned());
        }
        lines.extend(self.flags.iter().flat_map(flag));
        lines.extend(self.segments.iter().filter_map(segment));
        lines.extend(self.identity_overrides.as_ref().map(identities));
        if self.only_conditions {
            let rest = "flags and segments are equal: the revisions differ in conditions of segments, keys, or notes";
            lines.push(rest.to_owned());
        }
        lines
    }
}

fn sign(change: Change) -> char {
    match change {
        Change::Added => '+',
        Change::Removed => '-',
        Change::Changed => '~',
    }
}

fn flag(flag: &FlagChange) -> Vec<String> {
    let FlagChange { name, change, before, after, segments, reordered } = flag;
    let sign = sign(*change);
    let mut lines = Vec::new();
    match (before, after) {
        (Some(before), Some(after)) if before != after => {
            lines.push(format!("{sign} flag {name}: {} -> {}", default(before), default(after)));
        }
        (None, Some(state)) | (Some(state), None) => lines.push(format!("{sign} flag {name}: {}", default(state))),
        _ => {}
    }
    let text = |own: &Option<Outcome>| own.as_ref().map_or("none".to_owned(), outcome);
    lines.extend(segments.iter().map(|own| {
        format!("{sign} flag {name}, segment {:?}: {} -> {}", own.segment, text(&own.before), text(&own.after))
    }));
    if *reordered && lines.is_empty() {
        lines.push(format!("{sign} flag {name}: the order of its segment overrides changed"));
    }
    lines
}

fn default(state: &FlagState) -> String {
    let mut text = outcome(&state.outcome);
    for (applies, what) in [(state.server_only, "server keys only"), (!state.is_served, "not served")] {
        if applies {
            text = format!("{text}, {what}");
        }
    }
    text
}

fn outcome(outcome: &Outcome) -> String {
    let Outcome { enabled, value, variants } = outcome;
    let mut text = format!("{} {}", if *enabled { "on" } else { "off" }, shortened(value));
    for variant in variants {
        text = format!("{text}, {} % {}", variant.weight, shortened(&variant.value));
    }
    text
}

fn segment(segment: &SegmentChange) -> Option<String> {
    let SegmentChange { id, change, before, after } = segment;
    let sign = sign(*change);
    Some(match (before, after) {
        (Some(before), Some(after)) => format!(
            "{sign} segment {:?} ({id}): {} -> {:?}, {}",
            before.name,
            counted(before.overrides, "feature"),
            after.name,
            counted(after.overrides, "feature")
        ),
        (None, Some(state)) | (Some(state), None) => {
            format!("{sign} segment {:?} ({id}): {}", state.name, counted(state.overrides, "feature"))
        }
        (None, None) => return None,
    })
}

fn identities(identities: &IdentityChange) -> String {
    let IdentityChange { before, after, counts } = identities;
    let mut line = format!("~ identities with overrides: {before} -> {after}");
    if let Some(counts) = counts {
        line += &format!(" ({} added, {} removed, {} changed)", counts.added, counts.removed, counts.changed);
    }
    line
}
