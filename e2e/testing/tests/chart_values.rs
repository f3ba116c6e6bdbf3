//! Tests that every value of the chart is described: in `values.yaml` by a comment, in `values.schema.json` by a
//! description, and in the table of the chart's README, which `make generate` writes from the comments.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use remora_testing::assert_generated;
use serde_json::Value;

const BEGIN: &str = "<!-- The table is generated from values.yaml: make generate -->\n";
const END: &str = "<!-- End of the generated table. -->\n";

/// A value of the chart, or a group of values.
#[derive(Debug, PartialEq, Eq)]
struct Entry {
    /// Path with dots.
    path: String,
    /// The comment above it, in one line.
    comment: String,
}

fn chart() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../charts/remora")
}

fn read(file: &str) -> String {
    std::fs::read_to_string(chart().join(file)).unwrap()
}

/// Returns the default of the value at a path.
fn default<'a>(values: &'a Value, path: &str) -> &'a Value {
    path.split('.').fold(values, |value, key| &value[key])
}

/// Returns true if users set this value as a whole, whatever members its default has.
fn is_whole(path: &str, value: &Value) -> bool {
    let is_resources = path.ends_with(".resources") && path != "sidecar.resources";
    is_resources || value.as_object().is_none_or(serde_json::Map::is_empty)
}

/// Returns the key that a line of YAML begins with, and its indentation.
fn key(line: &str) -> Option<(usize, &str)> {
    let trimmed = line.trim_start();
    let (key, _) = trimmed.split_once(':')?;
    let is_key = !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_alphanumeric());
    is_key.then_some((line.len() - trimmed.len(), key))
}

/// Returns all values in the order of the text, with their comments. A blank line ends a comment.
fn entries(text: &str, values: &Value) -> Vec<Entry> {
    let mut found: Vec<Entry> = Vec::new();
    let mut above: Vec<(usize, &str)> = Vec::new();
    let mut comment = String::new();
    for line in text.lines() {
        if let Some(words) = line.trim_start().strip_prefix('#') {
            let words = words.trim();
            let separator = if comment.is_empty() {
                ""
            } else if words.starts_with("- ") {
                "<br>"
            } else {
                " "
            };
            comment = format!("{comment}{separator}{words}");
        } else if let Some((indentation, key)) = key(line) {
            above.retain(|(outer, _)| *outer < indentation);
            above.push((indentation, key));
            let path = above.iter().map(|(_, key)| *key).collect::<Vec<_>>().join(".");
            let is_member = found.iter().any(|entry| {
                path.starts_with(&format!("{}.", entry.path)) && is_whole(&entry.path, default(values, &entry.path))
            });
            if !is_member {
                found.push(Entry { path, comment: std::mem::take(&mut comment) });
            }
        } else {
            comment.clear();
        }
    }
    found
}

/// Returns the text as the content of a cell.
fn cell(text: &str) -> String {
    let escaped = text.replace('|', "\\|").replace('<', "&lt;").replace('>', "&gt;");
    escaped.replace("&lt;br&gt;", "<br>")
}

/// Returns the table of values in Markdown.
fn table(entries: &[Entry], values: &Value) -> String {
    let mut table = String::from("| value | default | meaning |\n|---|---|---|\n");
    for Entry { path, comment } in entries {
        let value = default(values, path);
        let default = if is_whole(path, value) { format!("`{value}`").replace('|', "\\|") } else { String::new() };
        if !default.is_empty() || !comment.is_empty() {
            writeln!(table, "| `{path}` | {default} | {} |", cell(comment)).unwrap();
        }
    }
    table
}

/// Returns the text with this table between the marks.
fn with_table(text: &str, table: &str) -> String {
    let (before, rest) = text.split_once(BEGIN).expect("the mark before the table");
    let (_, after) = rest.split_once(END).expect("the mark after the table");
    format!("{before}{BEGIN}\n{table}\n{END}{after}")
}

/// Collects the paths of all properties without a description, and returns the number of properties.
fn undescribed(schema: &Value, path: &str, found: &mut Vec<String>) -> usize {
    let mut count = 0;
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{path}.{name}");
        if property["description"].as_str().is_none_or(|text| !text.ends_with('.')) {
            found.push(path.clone());
        }
        count += 1 + undescribed(property, &path, found) + undescribed(&property["items"], &path, found);
    }
    count
}

#[test]
fn readme_has_table_of_all_values() {
    let text = read("values.yaml");
    let values: Value = serde_yaml::from_str(&text).unwrap();
    let entries = entries(&text, &values);
    assert!(entries.len() > 50, "{entries:?}");
    let described = entries.iter().filter(|entry| is_whole(&entry.path, default(&values, &entry.path)));
    let missing: Vec<_> = described.filter(|entry| entry.comment.len() < 10).map(|entry| &entry.path).collect();
    assert!(missing.is_empty(), "no comment in values.yaml describes {missing:?}");
    assert_generated(&chart().join("README.md"), &with_table(&read("README.md"), &table(&entries, &values)));
}

#[test]
fn schema_describes_every_value() {
    let schema: Value = serde_json::from_str(&read("values.schema.json")).unwrap();
    let mut missing = Vec::new();
    let mut count = undescribed(&schema, "", &mut missing);
    for (name, definition) in schema["definitions"].as_object().unwrap() {
        count += undescribed(definition, &format!("definitions/{name}"), &mut missing);
    }
    assert!(count > 60, "{count}");
    assert!(missing.is_empty(), "no description, or one without a full stop: {missing:?}");
}

#[test]
fn entries_have_paths_and_comments() {
    let text = "# About the file.\n\n# A group.\na:\n  # The first line\n  # and the second.\n  b: 1\n  resources:\n    requests: {c: d}\n# Points:\n# - one\n# - two\ne:\n  - https://x\n";
    let values = serde_yaml::from_str(text).unwrap();
    let entry = |path: &str, comment: &str| Entry { path: path.to_owned(), comment: comment.to_owned() };
    let expected = [
        entry("a", "A group."),
        entry("a.b", "The first line and the second."),
        entry("a.resources", ""),
        entry("e", "Points:<br>- one<br>- two"),
    ];
    let found = entries(text, &values);
    assert_eq!(found, expected);
    let table = table(&found, &values);
    assert!(table.contains("| `a` |  | A group. |\n| `a.b` | `1` | The first line"), "{table}");
    assert!(table.contains(r#"| `a.resources` | `{"requests":{"c":"d"}}` |  |"#), "{table}");
    assert!(table.contains(r#"| `e` | `["https://x"]` |"#), "{table}");
}
