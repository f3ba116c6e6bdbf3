//! The list of pods as text, and its exit code. Pure.

use std::{collections::BTreeMap, fmt};

use remora_tools::counted;

use super::{Listed, row::State};
use crate::ask::answer::{Colour, CommandOutput, TextOutput};

impl CommandOutput for Listed {
    fn text(&self, output: &mut TextOutput) -> fmt::Result {
        let published = self.revision.as_deref().unwrap_or("none");
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for row in &self.pods {
            *counts.entry(row.state.word()).or_default() += 1;
        }
        let counts: Vec<String> = counts.iter().map(|(state, count)| format!(", {count} {state}")).collect();
        output.line(format!(
            "published revision {published}: {}{}",
            counted(self.pods.len(), "pod"),
            counts.concat()
        ))?;
        let mut rows = vec![["POD", "NODE", "STATE", "REVISION", "SINCE"].map(str::to_owned).to_vec()];
        rows.extend(self.pods.iter().map(|row| {
            let since = row.since.map_or("-".to_owned(), |at| at.to_string());
            let revision = row.revision.clone().unwrap_or_else(|| "-".to_owned());
            vec![row.pod.clone(), row.node.clone(), row.state.word().to_owned(), revision, since]
        }));
        output.table(&rows)?;
        for row in self.pods.iter().filter(|row| !row.overrides.is_empty()) {
            let state = (Colour::Yellow, "overrides flags");
            output.painted_line(format!("{}: ", row.pod), state, format!(": {}", row.overrides.join(", ")))?;
        }
        for (row, secret) in self.pods.iter().filter_map(|row| Some((row, row.override_key.as_ref()?))) {
            let state = (Colour::Yellow, "accepts signed overrides");
            let key = format!(" in requests, with the key of Secret {secret:?}");
            output.painted_line(format!("{}: ", row.pod), state, key)?;
        }
        for (row, why) in self.pods.iter().filter_map(|row| Some((row, row.why.as_ref()?))) {
            let state = (row.state.colour(), row.state.word());
            output.painted_line(format!("{}: ", row.pod), state, format!(": {why}"))?;
        }
        for more in self.problem.iter().chain(&self.unasked) {
            output.line(more)?;
        }
        Ok(())
    }

    fn exit_code(&self) -> u8 {
        if self.unasked.is_some() { 3 } else { u8::from(self.pods.iter().any(|row| row.state != State::Current)) }
    }
}

impl State {
    fn word(self) -> &'static str {
        match self {
            Self::Current => "current",
            Self::Behind => "behind",
            Self::Starting => "starting",
            Self::Unknown => "unknown",
        }
    }

    fn colour(self) -> Colour {
        match self {
            Self::Current => Colour::Green,
            Self::Behind => Colour::Red,
            Self::Starting | Self::Unknown => Colour::Yellow,
        }
    }
}
