//! The table of faults names only tests that exist.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that panics has failed, as it should"
)]

use std::fs;

use remora_e2e::harness::root;

/// Number of rows of the fault matrix.
const ROWS: usize = 72;

/// Row of the table: its number, and the tests that it names as `path::function`.
struct Row<'a> {
    number: usize,
    holds: &'a str,
    tests: Vec<&'a str>,
}

fn rows(table: &str) -> Vec<Row<'_>> {
    let rows = table.lines().filter_map(|line| {
        let cells: Vec<&str> = line.strip_prefix("| ")?.strip_suffix(" |")?.split(" | ").collect();
        let number = cells.first()?.parse().ok()?;
        let [_, fault, holds, tests] = cells[..] else { panic!("row {number} has {} cells", cells.len()) };
        assert!(!fault.is_empty() && !holds.is_empty(), "row {number} says nothing");
        Some(Row { number, holds, tests: tests.split('`').skip(1).step_by(2).collect() })
    });
    rows.collect()
}

/// True if the source has a function of this name with a test attribute.
fn has_test(source: &str, function: &str) -> bool {
    let lines: Vec<&str> = source.lines().map(str::trim).collect();
    let is_it = |line: &str| {
        let name = line.strip_prefix("async ").unwrap_or(line).strip_prefix("fn ");
        name.and_then(|name| name.split('(').next()) == Some(function)
    };
    lines.iter().enumerate().filter(|(_, line)| is_it(line)).any(|(at, _)| {
        let above = lines[..at].iter().rev().take_while(|line| line.starts_with("#[") || line.starts_with("//"));
        above.into_iter().any(|line| line.starts_with("#[test]") || line.starts_with("#[tokio::test"))
    })
}

#[test]
fn every_row_names_tests_that_exist() {
    let table = fs::read_to_string(root().join("e2e/FAULTS.md")).unwrap();
    let rows = rows(&table);
    let numbers: Vec<usize> = rows.iter().map(|row| row.number).collect();
    assert_eq!(numbers, (1..=ROWS).collect::<Vec<_>>());
    let mut wrong = Vec::new();
    for Row { number, holds, tests } in &rows {
        if tests.is_empty() && !holds.contains("*No test:*") {
            wrong.push(format!("row {number} names no test and does not say why"));
        }
        for test in tests {
            let (path, function) = test.split_once("::").unwrap_or_else(|| panic!("row {number}: {test}"));
            match fs::read_to_string(root().join(path)) {
                Ok(source) if has_test(&source, function) => {}
                Ok(_) => wrong.push(format!("row {number}: {path} has no test {function}")),
                Err(error) => wrong.push(format!("row {number}: {path}: {error}")),
            }
        }
    }
    assert!(wrong.is_empty(), "e2e/FAULTS.md:\n{}", wrong.join("\n"));
}

#[test]
fn function_without_attribute_is_no_test() {
    let source = "#[test]\n#[allow(x)]\n/// What it shows.\nfn first() {}\n\nfn second() {}\n    #[tokio::test]\n    async fn third() {}\n// fn fourth()";
    let found = ["first", "second", "third", "fourth", "fir"].map(|name| has_test(source, name));
    assert_eq!(found, [true, false, true, false, false]);
}
