//! Tests that imports run one way: between the areas of each crate, and between the modules of each area. Modules that
//! only prepare and decide import no client.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "architecture/circles.rs"]
mod circles;
#[path = "architecture/imports.rs"]
mod imports;
#[path = "architecture/source.rs"]
mod source;

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use circles::circles;
use imports::Imports;
use source::Files;

const OPERATOR: &str = "src";
const COMPILE: &str = "compile/src";
const TOOLS: &str = "tools/src";
const SIDECAR: &str = "../sidecar/src";
const SNAPSHOT: &str = "../sidecar/snapshot/src";

/// Known import circles: the folder, and the modules in it. A circle that no longer exists must be removed from this
/// list.
const KNOWN_IN_THE_OPERATOR: [(&str, &str); 0] = [];
const KNOWN_IN_THE_SNAPSHOT: [(&str, &str); 0] = [];

/// Crates and modules that give access to anything outside of the process, or that wait for it.
const CLIENTS: [&str; 14] = [
    "axum",
    "hyper",
    "hyper_util",
    "k8s_openapi",
    "kube",
    "reqwest",
    "rustls",
    "std::env",
    "std::fs",
    "std::net",
    "std::process",
    "std::thread",
    "tokio",
    "tower",
];

fn files(folder: &str) -> Files {
    Files::below(&Path::new(env!("CARGO_MANIFEST_DIR")).join(folder)).unwrap()
}

fn assert_one_way(folder: &str, known: &[(&str, &str)]) {
    let files = files(folder);
    let imports = Imports::of(&files);
    let found = circles(&imports);
    let is_known = |within: &str, members: &str| known.contains(&(within, members));
    let new: Vec<_> = found.iter().filter(|circle| !is_known(&circle.within, &circle.members())).collect();
    let told: Vec<_> = new.iter().map(ToString::to_string).collect();
    assert!(new.is_empty(), "imports of {folder} run in circles:\n{}", told.join("\n"));
    let gone: Vec<_> = known
        .iter()
        .filter(|(within, members)| !found.iter().any(|c| c.within == *within && c.members() == *members))
        .collect();
    assert!(gone.is_empty(), "these circles are gone, and have to leave the list of known ones: {gone:?}");
}

#[test]
fn operator_imports_have_no_new_circles() {
    assert_one_way(OPERATOR, &KNOWN_IN_THE_OPERATOR);
}

#[test]
fn sidecar_imports_run_one_way() {
    assert_one_way(SIDECAR, &[]);
}

#[test]
fn snapshot_imports_have_no_new_circles() {
    assert_one_way(SNAPSHOT, &KNOWN_IN_THE_SNAPSHOT);
}

/// Only the sequence of steps, with its parts, sees the whole state of an environment: each step sees its own part.
#[test]
fn steps_of_reconciliation_import_no_whole_state() {
    let whole = ["controller", "reconcile", "state"].map(str::to_owned);
    let imports = Imports::of(&files(OPERATOR)).0;
    let importers: BTreeSet<String> =
        imports.into_iter().filter(|import| import.to == whole).map(|import| import.from.join("::")).collect();
    let expected = [
        "controller::reconcile::context",
        "controller::reconcile::sequence",
        "controller::reconcile::sequence::document",
        "controller::reconcile::sequence::facts",
        "controller::reconcile::sequence::publication",
        "controller::reconcile::sequence::tasks",
    ];
    assert_eq!(importers, expected.map(str::to_owned).into());
}

#[test]
fn modules_that_all_areas_use_import_nothing_but_api() {
    let imports = Imports::of(&files(OPERATOR));
    for module in ["api_call", "counted", "fair_semaphore", "memory", "tasks"] {
        let areas: Vec<_> = imports.areas_of(module).into_iter().filter(|area| area != "api").collect();
        assert!(areas.is_empty(), "{module} imports {areas:?}");
    }
}

#[test]
fn compile_and_tools_imports_run_one_way() {
    assert_one_way(COMPILE, &[]);
    assert_one_way(TOOLS, &[]);
}

#[test]
fn compile_imports_no_client() {
    let outside = imports::outside(&files(COMPILE), &[], &CLIENTS);
    assert!(outside.is_empty(), "the compiler is pure:\n{}", outside.join("\n"));
}

/// The lines `area ──> area, area` in the documentation of a crate.
fn diagram(documentation: &str) -> Vec<(String, BTreeSet<String>)> {
    let line = |line: &str| {
        let (area, imported) = line.strip_prefix("//! ")?.split_once(" ──> ")?;
        Some((area.trim().to_owned(), imported.split(", ").map(|area| area.trim().to_owned()).collect()))
    };
    documentation.lines().filter_map(line).collect()
}

#[test]
fn sidecar_imports_are_those_of_its_diagram() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join(SIDECAR).join("lib.rs");
    let diagram = diagram(&std::fs::read_to_string(root).unwrap());
    assert!(diagram.len() > 4, "{diagram:?}");
    let drawn: BTreeSet<String> =
        diagram.iter().flat_map(|(area, imported)| imported.iter().chain([area])).cloned().collect();
    let imports = Imports::of(&files(SIDECAR));
    for area in &drawn {
        let expected = diagram.iter().find(|(other, _)| other == area).map(|(_, imported)| imported.clone());
        let found: BTreeSet<String> = imports.areas_of(area).intersection(&drawn).cloned().collect();
        assert_eq!(found, expected.unwrap_or_default(), "{area} imports other areas than its line in the diagram has");
    }
}

#[test]
fn sidecar_dialects_import_only_json() {
    let files = files(SIDECAR);
    let outside = imports::outside(&files, &["dialects", "json"], &CLIENTS);
    assert!(outside.is_empty(), "dialects/ and json/ are pure:\n{}", outside.join("\n"));
    let imports = Imports::of(&files);
    assert_eq!(imports.areas_of("dialects").into_iter().collect::<Vec<_>>(), ["json"]);
    assert!(imports.areas_of("json").is_empty());
}

#[test]
fn sidecar_http_imports_no_flags() {
    let areas = Imports::of(&files(SIDECAR)).areas_of("http");
    let allowed = ["json", "lock", "log", "volume"];
    let other: Vec<_> = areas.iter().filter(|area| !allowed.contains(&area.as_str())).collect();
    assert!(other.is_empty(), "http/ imports {other:?}");
}

#[test]
fn snapshot_format_imports_only_values() {
    let areas = Imports::of(&files(SNAPSHOT)).areas_of("format");
    assert_eq!(areas.into_iter().collect::<Vec<_>>(), ["values"], "format/ is layout and access to rows");
}

#[test]
fn snapshot_imports_no_client() {
    let outside = imports::outside(&files(SNAPSHOT), &[], &CLIENTS);
    assert!(outside.is_empty(), "the snapshot does no input or output:\n{}", outside.join("\n"));
}

/// Creates source files that exist only in this test.
fn planted(files: &[(&str, &str)]) -> Files {
    Files::read(files.iter().map(|(path, text)| (PathBuf::from(path), (*text).to_owned()))).unwrap()
}

fn found(files: &[(&str, &str)]) -> Vec<String> {
    circles(&Imports::of(&planted(files))).iter().map(ToString::to_string).collect()
}

#[test]
fn modules_that_import_each_other_form_circle() {
    let found = found(&[
        ("lib.rs", "mod a; mod b;"),
        ("a.rs", "use crate::b::B;\npub struct A;"),
        ("b.rs", "pub struct B;\n\npub fn of(_: super::a::A) {}"),
    ]);
    assert_eq!(found, ["a, b\n  a.rs:1 imports B of b.rs\n  b.rs:3 imports A of a.rs"]);
}

#[test]
fn circle_through_re_exports_and_groups_is_found() {
    let found = found(&[
        ("lib.rs", "pub mod x; pub mod y;"),
        ("x.rs", "mod inner;\npub use self::inner::{Deep as Renamed, Other};\nuse crate::{y::{self, Y}};"),
        ("x/inner.rs", "pub struct Deep; pub struct Other;"),
        ("y.rs", "pub struct Y;\nfn f() { let _ = vec![crate::x::Renamed]; }"),
    ]);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].contains("y.rs:2 imports Deep of x/inner.rs"), "{found:?}");
}

#[test]
fn circle_of_three_modules_is_found_within_its_folder() {
    let found = found(&[
        ("lib.rs", "mod p;"),
        ("p.rs", "mod a; mod b; mod c;"),
        ("p/a.rs", "use super::b::*; pub struct A;"),
        ("p/b.rs", "use super::c::C; pub struct B;"),
        ("p/c.rs", "pub struct C(pub super::a::A);"),
    ]);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].starts_with("p: a, b, c\n"), "{found:?}");
}

#[test]
fn one_way_imports_and_imports_of_tests_form_no_circle() {
    let found = found(&[
        ("lib.rs", "mod a; mod b;"),
        (
            "a.rs",
            "use crate::b::B; pub struct A;\n/// [`A`](crate::a::A), `crate::b`\npub const TEXT: &str = \"crate::b\";",
        ),
        (
            "b.rs",
            "pub struct B;\n#[cfg(test)]\nmod tests { use crate::a::A; }\n#[cfg(test)]\nuse crate::a::A;\nmod c;\n#[cfg(test)]\nmod more;",
        ),
        ("b/c.rs", "use super::B;"),
        ("b/more.rs", "use crate::a::A;"),
    ]);
    assert!(found.is_empty(), "{found:?}");
}

#[test]
fn client_in_pure_folder_is_found() {
    let files = planted(&[
        ("lib.rs", "mod compile; mod source;"),
        ("compile.rs", "mod inner; // tokio::spawn\nuse std::{collections::HashMap, fs::File};"),
        (
            "compile/inner.rs",
            "fn f() { let s = \"kube::Client\";\n    ::kube::Client::try_default(); }\n#[cfg(test)]\nmod tests { use tokio::test; }",
        ),
        ("source.rs", "use reqwest::Client;"),
    ]);
    let outside = imports::outside(&files, &["compile"], &CLIENTS);
    assert_eq!(outside, ["compile.rs:2 names std::fs", "compile/inner.rs:2 names kube"]);
}
