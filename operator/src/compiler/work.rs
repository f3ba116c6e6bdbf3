//! Work of a child: parse, prune and compile a document. Pure except for the pages, which are read one by one.

use std::io;

use remora_compile::{
    Compiled, File, Progress,
    about::DocumentStats,
    compile,
    document::{self, Document, Original},
    prune::{self, Rules, Selection, prune_with_progress},
};

use super::{
    error::RefusalKind,
    message::{ChildAnswer, CompiledHeader, Task},
    redact::redacted,
};
use crate::api::{self, EnvironmentFlags, Serve};

/// Largest number of findings in an answer. Of further findings, the answer has only the number.
const FINDINGS_MAX: usize = 50;
/// Largest length of a document's client-side key in bytes. Flagsmith's keys have 22.
const CLIENT_KEY_MAX: usize = 1 << 10;
/// Largest length of the time at which a document changed, in bytes.
const UPDATED_AT_MAX: usize = 128;

/// Compiles the pages of a document. Returns the answer and its files.
///
/// # Errors
/// If a page cannot be read. Problems of the document are part of the answer.
pub(super) fn work(
    task: &Task,
    pages: impl IntoIterator<Item = io::Result<Vec<u8>>>,
    progress: Progress<'_>,
) -> io::Result<(ChildAnswer, Vec<File>)> {
    let mut read: Option<(Document, Original)> = None;
    for page in pages {
        let page = page?;
        progress.at("reading the document");
        let parsed = match document::parse(&page) {
            Ok(parsed) => parsed,
            Err(error) => return Ok((malformed(&error), Vec::new())),
        };
        let kept = if task.serve.environment_document { page } else { Vec::new() };
        match &mut read {
            None => read = Some((parsed, Original::new(kept))),
            Some((document, original)) => match document.append_page(parsed) {
                Ok(()) => original.append_page(kept),
                Err(document::Error::ChangedBetweenPages) => return Ok((ChildAnswer::ChangedBetweenPages, Vec::new())),
                Err(error) => return Ok((malformed(&error), Vec::new())),
            },
        }
    }
    let Some((document, original)) = read else {
        return Ok((ChildAnswer::Malformed("it has no page".to_owned()), Vec::new()));
    };
    let about = DocumentStats::of(&document);
    if about.client_key.len() > CLIENT_KEY_MAX {
        return Ok((ChildAnswer::Malformed(format!("api_key: longer than {CLIENT_KEY_MAX} bytes")), Vec::new()));
    }
    if about.updated_at.as_ref().is_some_and(|at| at.len() > UPDATED_AT_MAX) {
        return Ok((ChildAnswer::Malformed(format!("updated_at: longer than {UPDATED_AT_MAX} bytes")), Vec::new()));
    }
    let original = task.serve.environment_document.then_some(original);
    Ok(match compiled(task, document, original.as_ref(), progress) {
        Ok(compiled) => answer(compiled, about),
        Err((kind, problem)) => (ChildAnswer::Refused { kind, problem }, Vec::new()),
    })
}

fn malformed(error: &document::Error) -> ChildAnswer {
    ChildAnswer::Malformed(redacted(error))
}

fn compiled(
    task: &Task,
    document: Document,
    original: Option<&Original>,
    progress: Progress<'_>,
) -> Result<Compiled, (RefusalKind, String)> {
    let rules = rules(&task.prune).map_err(|error| (RefusalKind::Contradiction, error.to_string()))?;
    progress.at("pruning the document");
    let pruned = prune_with_progress(document, &rules, progress);
    let server_keys: Vec<&str> = task.server_keys.iter().map(String::as_str).collect();
    let options = remora_compile::Options {
        environment: &task.environment,
        server_keys: &server_keys,
        environment_flags: mode(&task.serve),
        ofrep: ofrep(task.serve.ofrep),
        document: original,
        progress,
    };
    compile(&pruned, &options).map_err(|error| match error {
        remora_compile::Error::Size(_) => (RefusalKind::Capacity, error.to_string()),
        _ => (RefusalKind::Contradiction, error.to_string()),
    })
}

fn answer(compiled: Compiled, about: DocumentStats) -> (ChildAnswer, Vec<File>) {
    let Compiled { files, revision, summary, findings } = compiled;
    let listed = findings.iter().take(FINDINGS_MAX);
    let contents = CompiledHeader {
        revision: revision.to_string(),
        summary,
        finding_count: findings.len(),
        findings: listed
            .map(|finding| api::Finding { subject: finding.subject.clone(), message: finding.message.clone() })
            .collect(),
        about,
        files: files.iter().map(|file| (file.name.clone(), file.bytes.len())).collect(),
    };
    (ChildAnswer::Compiled(Box::new(contents)), files)
}

/// Parses the prune rules.
///
/// # Errors
/// If a glob cannot be parsed; the error names the first one.
pub(crate) fn rules(prune: &api::PruneRules) -> Result<Rules, prune::Error> {
    Rules::compile(&Selection {
        include: &prune.features.include,
        exclude: &prune.features.exclude,
        drop_server_only: prune.server_only_features.is_drop(),
        drop_identity_overrides: prune.identity_overrides.is_drop(),
    })
}

fn ofrep(ofrep: api::Ofrep) -> remora_compile::Ofrep {
    remora_compile::Ofrep {
        boolean_flags: match ofrep.boolean_flags {
            api::BooleanFlags::Value => remora_compile::BooleanFlags::Value,
            api::BooleanFlags::Enabled => remora_compile::BooleanFlags::Enabled,
        },
        disabled_flags: match ofrep.disabled_flags {
            api::DisabledFlags::CodeDefault => remora_compile::DisabledFlags::CodeDefault,
            api::DisabledFlags::Value => remora_compile::DisabledFlags::Value,
        },
        object_flags: match ofrep.object_flags {
            api::ObjectFlags::Text => remora_compile::ObjectFlags::Text,
            api::ObjectFlags::Object => remora_compile::ObjectFlags::Object,
        },
    }
}

fn mode(serve: &Serve) -> remora_compile::EnvironmentFlags {
    match serve.environment_flags {
        EnvironmentFlags::Plain => remora_compile::EnvironmentFlags::Plain,
        EnvironmentFlags::IdentityFree => remora_compile::EnvironmentFlags::IdentityFree,
        EnvironmentFlags::AllSegments => remora_compile::EnvironmentFlags::AllSegments,
    }
}
