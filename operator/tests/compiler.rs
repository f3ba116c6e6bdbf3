//! Tests that documents are compiled by a child process with limits, and that every failure of the child gives an error
//! that names the cause.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "compiler/program.rs"]
mod program;

use std::{fs, path::PathBuf, time::Instant};

use remora_operator::{
    api::{Reason, Serve},
    compiler::{Compiler, Error, Request, Response, Task},
    source::fetch::DOCUMENT_MAX,
};
use remora_snapshot::Snapshot;
use serde_json::{Value, json};

use program::{OPERATOR, directory, script};

fn task() -> Task {
    Task { environment: "storefront".to_owned(), ..Task::default() }
}

async fn compiled_by(program: impl Into<PathBuf>, task: Task, pages: Vec<Vec<u8>>) -> Result<Response, Error> {
    Compiler::with_program(program, DOCUMENT_MAX).compile("shop", Request { task, pages }).await
}

async fn compiled(task: Task, pages: &[Value]) -> Result<Response, Error> {
    compiled_by(OPERATOR, task, pages.iter().map(|page| page.to_string().into_bytes()).collect()).await
}

fn state(id: usize) -> Value {
    json!({
        "feature": {"id": id, "name": format!("feature_{id}"), "type": "STANDARD"}, "enabled": true, "django_id": id,
        "feature_state_value": null, "multivariate_feature_state_values": [],
    })
}

fn page(updated_at: &str, identities: std::ops::Range<usize>) -> Value {
    let identities: Vec<Value> = identities
        .map(|number| {
            let identifier = format!("person-{number:08}@a-rather-long-domain.example.com");
            json!({"identifier": identifier, "identity_uuid": format!("{number:036}"), "composite_key": format!("client_{identifier}"),
                "identity_features": [state(1 + number % 20), state(21), state(22), state(20)]})
        })
        .collect();
    let features: Vec<Value> = (1..=22).map(state).collect();
    json!({"id": 1, "api_key": "client", "updated_at": updated_at, "project": {}, "feature_states": features,
        "identity_overrides": identities})
}

const AT: &str = "2026-11-20T00:00:00+00:00";

fn segment(id: usize, regex: &str) -> Value {
    let condition = json!({"operator": "REGEX", "property_": "email", "value": regex});
    json!({"id": id, "name": format!("people {id}"), "rules": [{"type": "ALL", "rules": [], "conditions": [condition]}],
        "feature_states": [state(1)]})
}

#[tokio::test]
async fn document_of_several_pages_compiled_by_child_has_what_all_pages_have() {
    let response = compiled(task(), &[page(AT, 0..10), page(AT, 10..15)]).await.unwrap();
    assert_eq!((response.summary.features, response.summary.identity_overrides), (22, 15));
    assert_eq!((response.about.client_key.as_str(), response.about.overrides), ("client", 15));
    assert_eq!(response.about.updated_at.as_deref(), Some(AT));
    let core = response.files.iter().find(|file| file.name == "core").unwrap();
    assert_eq!(Snapshot::read(core.bytes.as_slice()).unwrap().environment(), "storefront");
    assert!(response.finding_count >= response.findings.len() && !response.revision.is_empty());
}

/// The document has 50,000 identities and 40 MB.
#[tokio::test]
async fn document_of_forty_megabytes_compiles_within_bounds_of_child() {
    let pages = vec![page(AT, 0..50_000).to_string().into_bytes()];
    assert!(pages[0].len() > 40_000_000, "{}", pages[0].len());
    let serve = Serve { environment_document: true, ..Serve::default() };
    let task = Task { server_keys: vec!["ser.key".to_owned()], serve, ..task() };
    let response = compiled_by(OPERATOR, task, pages).await.unwrap();
    assert_eq!(response.summary.identity_overrides, 50_000);
    assert!(response.files.iter().any(|file| file.name == "document-00"));
}

#[tokio::test]
async fn bytes_that_are_no_document_are_malformed_and_not_repeated() {
    for body in [
        "",
        "null",
        "[]",
        "<html>canary</html>",
        r#"{"id": "canary"}"#,
        r#"{"id": 1} canary"#,
        r#"{"api_key": ["canary"]}"#,
        r#"{"api_key": "k", "project": "canary"}"#,
    ] {
        let error = compiled_by(OPERATOR, task(), vec![body.as_bytes().to_vec()]).await.unwrap_err();
        assert!(matches!(error, Error::Malformed(_)), "{body}: {error:?}");
        assert!(!error.to_string().contains("canary"), "{error}");
    }
}

#[tokio::test]
async fn pages_of_different_environments_are_refused() {
    let changed = compiled(task(), &[page(AT, 0..1), page("2026-11-20T00:00:01+00:00", 1..2)]).await.unwrap_err();
    assert!(matches!(changed, Error::ChangedBetweenPages), "{changed:?}");
    let mut other = page(AT, 1..2);
    other["api_key"] = json!("other");
    let other = compiled(task(), &[page(AT, 0..1), other]).await.unwrap_err();
    assert!(matches!(other, Error::Malformed(_)), "{other:?}");
}

#[tokio::test]
async fn overlong_key_or_time_of_document_is_refused() {
    for (member, length) in [("api_key", 1025), ("updated_at", 129)] {
        let mut page = page(AT, 0..0);
        page[member] = json!("x".repeat(length));
        let error = compiled(task(), &[page]).await.unwrap_err();
        assert!(error.to_string().contains(member), "{error}");
    }
}

#[tokio::test]
async fn document_that_contradicts_itself_is_refused_with_its_place() {
    let mut page = page(AT, 0..0);
    page["feature_states"][3]["multivariate_feature_state_values"] =
        json!([{"multivariate_feature_option": {"value": "x"}, "percentage_allocation": 10.0, "id": 1}]);
    page["feature_states"][3]["django_id"] = json!(null);
    let error = compiled(task(), &[page]).await.unwrap_err();
    assert_eq!(error.reason(), Reason::CompileError);
    assert!(error.to_string().contains("feature_states[3]"), "{error}");
}

#[tokio::test]
async fn document_whose_values_do_not_fit_into_a_core_exceeds_capacity() {
    let mut page = page(AT, 0..0);
    for state in page["feature_states"].as_array_mut().unwrap() {
        state["feature_state_value"] = json!("x".repeat(900_000));
    }
    assert_eq!(compiled(task(), &[page]).await.map(drop).unwrap_err().reason(), Reason::CapacityExceeded);
}

/// Returns a program that runs the real child with lower limits.
fn bounded(arguments: &str) -> PathBuf {
    script(&directory(), &format!("exec \"$operator\" compile-process {arguments}"))
}

#[tokio::test]
async fn child_beyond_memory_limit_is_reported_as_out_of_memory() {
    let program = bounded("--memory-bytes=67108864 --cpu-seconds=600");
    let error = compiled_by(program, task(), vec![page(AT, 0..50_000).to_string().into_bytes()]).await.unwrap_err();
    assert_eq!(error.reason(), Reason::CompileOutOfMemory, "{error}");
    assert!(error.is_costly());
}

#[tokio::test]
async fn child_beyond_time_limit_is_reported_with_its_place() {
    let mut page = page(AT, 0..1);
    // The regular expression of each segment takes noticeable time to compile.
    let segments: Vec<Value> =
        (0..5_000).map(|id| segment(id, &format!("^(.*[0-9]{{1,20}}x{id}|[^@]{{1,30}}y{id}.*z)@(a|b|c)+$"))).collect();
    page["project"]["segments"] = json!(segments);
    let program = bounded("--memory-bytes=1073741824 --cpu-seconds=1");
    let error = compiled_by(program, task(), vec![page.to_string().into_bytes()]).await.unwrap_err();
    assert_eq!(error.reason(), Reason::CompileOutOfTime, "{error}");
    let text = error.to_string();
    assert!(text.contains("CPU time") && text.contains("at: segment \"people "), "{text}");
}

#[tokio::test]
async fn child_with_stack_overflow_is_reported_as_crashed() {
    let error = compiled_by(
        script(&directory(), "ulimit -s 40; exec \"$operator\" \"$@\""),
        task(),
        vec![page(AT, 0..1).to_string().into_bytes()],
    );
    let error = error.await.unwrap_err();
    assert_eq!(error.reason(), Reason::CompileCrashed, "{error}");
    assert!(error.to_string().contains("its process overflowed its stack"), "{error}");
}

#[tokio::test]
async fn child_that_aborts_or_gives_no_answer_is_reported_as_crashed() {
    for (text, says) in [
        ("kill -ABRT $$", "signal 6"),
        ("kill -KILL $$", "killed by the system"),
        ("exit 3", "status 3"),
        ("exit 0", "status 0"),
        ("cat >/dev/null; echo hello", "unknown kind"),
        // The frame announces four gigabytes.
        ("printf 'a\\377\\377\\377\\377'; cat", "longer than allowed"),
        ("printf 'a\\002\\000\\000\\000{}'", "not JSON"),
        ("printf 'p\\004\\000\\000\\000here'; exit 7", "status 7, and it was at: here"),
        ("yes >&2 & kill -ABRT $$", "signal 6"),
    ] {
        let error = compiled_by(script(&directory(), text), task(), vec![b"{}".to_vec()]).await.unwrap_err();
        assert!(matches!(error, Error::Crashed { .. }), "{text}: {error:?}");
        assert!(error.to_string().contains(says), "{text}: {error}");
    }
}

#[tokio::test]
async fn child_that_cannot_start_is_reported_as_not_started() {
    let error = compiled_by("/nowhere/remora-operator", task(), vec![b"{}".to_vec()]).await.unwrap_err();
    assert_eq!(error.reason(), Reason::CompileNotStarted);
    assert!(!error.is_costly(), "it costs nothing to try again");
}

#[tokio::test]
async fn child_inherits_no_variable_and_no_descriptor() {
    let directory = directory();
    let text = "env > $directory/variables; ls -l /proc/self/fd > $directory/descriptors";
    let _secret = fs::File::create(directory.join("secret")).unwrap();
    let _connection = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let sockets = || {
        let all = fs::read_dir("/proc/self/fd").unwrap().filter_map(|entry| fs::read_link(entry.unwrap().path()).ok());
        all.map(|target| target.display().to_string()).filter(|target| target.starts_with("socket:"))
    };
    assert!(sockets().count() > 0);
    compiled_by(script(&directory, text), task(), vec![b"{}".to_vec()]).await.unwrap_err();
    let variables = fs::read_to_string(directory.join("variables")).unwrap();
    let own = ["PWD", "PATH", "_", "SHLVL", "OLDPWD"];
    let foreign: Vec<&str> = variables.lines().filter(|line| !own.contains(&line.split('=').next().unwrap())).collect();
    assert!(foreign.is_empty(), "{foreign:?}");
    let descriptors = fs::read_to_string(directory.join("descriptors")).unwrap();
    assert!(descriptors.contains("pipe:") && !descriptors.contains("/secret"), "{descriptors}");
    for socket in sockets() {
        assert!(!descriptors.contains(&socket), "{socket}: {descriptors}");
    }
}

#[tokio::test]
async fn child_sets_limits_and_filter_of_system_calls_before_it_reads() {
    let directory = directory();
    // The child waits for its input, so that the script can read its limits.
    let text = "\
        mkfifo $directory/pipe\n\
        \"$operator\" compile-process --memory-bytes=335544320 --cpu-seconds=11 < $directory/pipe &\n\
        child=$!\n\
        exec 9> $directory/pipe\n\
        while ! grep -q 'Seccomp:.2' /proc/$child/status; do :; done\n\
        cat /proc/$child/limits > $directory/limits\n\
        cat /proc/$child/status > $directory/status\n\
        kill -KILL $child";
    compiled_by(script(&directory, text), task(), vec![b"{}".to_vec()]).await.unwrap_err();
    let status = fs::read_to_string(directory.join("status")).unwrap();
    assert!(status.contains("NoNewPrivs:\t1") && status.contains("Threads:\t1"), "{status}");
    let limits = fs::read_to_string(directory.join("limits")).unwrap();
    for (name, soft, hard) in [
        ("Max address space", "335544320", "335544320"),
        ("Max cpu time", "11", "12"),
        ("Max core file size", "0", "0"),
        ("Max file size", "0", "0"),
        ("Max open files", "3", "3"),
        ("Max processes", "0", "0"),
        ("Max stack size", "8388608", "8388608"),
    ] {
        let line = limits.lines().find(|line| line.starts_with(name)).unwrap();
        let values: Vec<&str> = line[name.len()..].split_whitespace().take(2).collect();
        assert_eq!(values, [soft, hard], "{line}");
    }
}

#[tokio::test]
async fn child_of_abandoned_document_is_killed() {
    let directory = directory();
    let program = script(&directory, "echo $$ > $directory/new; mv $directory/new $directory/pid; exec sleep 600");
    let compiling = tokio::spawn(compiled_by(program, task(), vec![b"{}".to_vec()]));
    let began = Instant::now();
    let pid = loop {
        match fs::read_to_string(directory.join("pid")) {
            Ok(pid) => break pid.trim().to_owned(),
            Err(_) => tokio::time::sleep(std::time::Duration::from_millis(5)).await,
        }
        assert!(began.elapsed().as_secs() < 60, "it did not start");
    };
    compiling.abort();
    assert!(compiling.await.unwrap_err().is_cancelled());
    while fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z ")) {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        assert!(began.elapsed().as_secs() < 60, "it is still there");
    }
}
