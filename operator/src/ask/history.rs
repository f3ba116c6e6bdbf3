//! `kubectl remora history`: the kept revisions and what each changed.

use std::fmt;

use jiff::Timestamp;
use serde::Serialize;

use super::{
    answer::{Colour, CommandOutput, TextOutput},
    cluster::Cluster,
    failure::Failure,
};
use crate::api::{Changes, FeatureEnvironmentStatus};

/// The kept revisions, latest first.
#[derive(Debug, Serialize)]
pub(super) struct History {
    environment: String,
    revisions: Vec<Row>,
    /// Revision that is held back.
    #[serde(skip_serializing_if = "Option::is_none")]
    held: Option<String>,
}

#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    revision: String,
    is_published: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    published_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    changes: Option<Changes>,
}

/// Lists the revisions of an environment.
pub(super) async fn history(cluster: &Cluster, environment: &str) -> Result<History, Failure> {
    let status = cluster.environment(environment).await?.status.unwrap_or_default();
    Ok(History {
        environment: environment.to_owned(),
        revisions: rows(&status),
        held: status.held_revision.map(|held| held.to_string()),
    })
}

fn rows(status: &FeatureEnvironmentStatus) -> Vec<Row> {
    let published = status.revision.iter().map(|revision| Row {
        revision: revision.to_string(),
        is_published: true,
        published_at: status.published_at.as_ref().map(|at| at.0),
        changes: status.changes.clone(),
    });
    let past = status.history.iter().map(|past| Row {
        revision: past.revision.to_string(),
        is_published: false,
        published_at: Some(past.published_at.0),
        changes: past.changes.clone(),
    });
    published.chain(past).collect()
}

impl CommandOutput for History {
    fn text(&self, output: &mut TextOutput) -> fmt::Result {
        let mut rows = vec![["REVISION", "PUBLISHED AT", "STATE", "CHANGES"].map(str::to_owned).to_vec()];
        rows.extend(self.revisions.iter().map(|row| {
            let changes = row.changes.as_ref().map_or("not known".to_owned(), |changes| changes.to_string());
            vec![
                row.revision.clone(),
                row.published_at.map_or("not known".to_owned(), |at| at.to_string()),
                if row.is_published { "published" } else { "kept" }.to_owned(),
                changes,
            ]
        }));
        output.table(&rows)?;
        if let Some(held) = &self.held {
            let confirm = format!(": kubectl remora confirm {} publishes it", self.environment);
            output.painted_line(format!("revision {held} is "), (Colour::Yellow, "held back"), confirm)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn published_revision_is_first_and_names_its_changes() {
        let status: FeatureEnvironmentStatus = serde_json::from_value(json!({
            "revision": "bbb", "publishedAt": "2026-11-20T14:03:00Z", "conditions": [],
            "changes": {"previous": "aaa", "count": 1, "changed": ["banner"]},
            "history": [{"revision": "aaa", "publishedAt": "2026-11-20T10:00:00Z"}],
        }))
        .unwrap();
        let rows = rows(&status);
        assert_eq!((rows[0].revision.as_str(), rows[0].is_published), ("bbb", true));
        assert_eq!((rows[1].revision.as_str(), rows[1].is_published), ("aaa", false));
        let history = History { environment: "shop".to_owned(), revisions: rows, held: Some("ccc".to_owned()) };
        let mut out = Vec::new();
        super::super::OutputFormat { json: false, colours: false }.write(&history, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let line = text.lines().nth(1).unwrap();
        assert!(
            line.starts_with("bbb        2026-11-20T14:03:00Z   published") && line.ends_with("\"banner\""),
            "{text}"
        );
        assert!(text.contains("kubectl remora confirm shop"), "{text}");
    }
}
