//! The stub itself, over real sockets: it must fail exactly as scripted, or the cases that use it prove nothing. Needs
//! no cluster.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that panics has failed, as it should"
)]

use std::time::{Duration, Instant};

use remora_e2e::upstream::{Fault, FlagChange, Options, Scripted, Settings, SilentChange, Upstream};
use reqwest::{Client, Response, StatusCode};
use serde_json::{Value, json};

const KEY: &str = "ser.test";

fn document() -> Value {
    json!({
        "id": 1, "api_key": "client", "name": "Test", "updated_at": "2026-11-21T00:01:24.250000+00:00",
        "feature_states": [{"feature": {"id": 1, "name": "a"}, "enabled": false, "feature_state_value": null}],
        "identity_overrides": (0..5).map(|n| json!({"identifier": format!("user {n}"), "identity_uuid": "x"})).collect::<Vec<_>>(),
    })
}

async fn upstream() -> (Upstream, Client) {
    let _installed_already = rustls::crypto::ring::default_provider().install_default();
    let upstream = Upstream::start(&Options::local()).await.unwrap();
    upstream.store().put(KEY, &document().to_string()).unwrap();
    let authority = reqwest::Certificate::from_pem(upstream.ca_pem().as_bytes()).unwrap();
    let client =
        Client::builder().tls_certs_only([authority]).redirect(reqwest::redirect::Policy::none()).build().unwrap();
    (upstream, client)
}

async fn fetch(client: &Client, upstream: &Upstream) -> reqwest::Result<Response> {
    client.get(format!("{}environment-document/", upstream.api_url())).header("X-Environment-Key", KEY).send().await
}

fn always(fault: Fault) -> [Scripted; 1] {
    [fault.into()]
}

#[tokio::test]
async fn wrong_key_gets_error_of_api() {
    let (upstream, client) = upstream().await;
    let url = format!("{}environment-document/", upstream.api_url());
    for (key, detail) in [
        (None, "Invalid or missing Environment key"),
        (Some("client"), "Invalid or missing Environment key"),
        (Some("ser.other"), "Invalid or missing Environment Key"),
    ] {
        let request = client.get(&url);
        let request = key.map_or(request.try_clone().unwrap(), |key| request.header("X-Environment-Key", key));
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), StatusCode::FORBIDDEN);
        assert_eq!(response.text().await.unwrap(), format!(r#"{{"detail":"{detail}"}}"#));
    }
    upstream.store().set(KEY, Settings { blocked: true, ..Settings::default() }).unwrap();
    let response = fetch(&client, &upstream).await.unwrap();
    assert_eq!(response.status(), StatusCode::FORBIDDEN);
    assert_eq!(response.text().await.unwrap(), r#"{"detail":"Organisation is disabled from serving flags."}"#);
}

#[tokio::test]
async fn document_is_served_over_http_and_https_then_not_modified() {
    let (upstream, client) = upstream().await;
    for base in [upstream.api_url(), upstream.api_url_tls()] {
        let url = format!("{base}environment-document/");
        let response = client.get(&url).header("X-Environment-Key", KEY).send().await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        let modified = response.headers()["last-modified"].clone();
        let body: Value = response.json().await.unwrap();
        assert_eq!(body["identity_overrides"].as_array().unwrap().len(), 5);
        assert_ne!(body["identity_overrides"][0]["identity_uuid"], "x");

        let response = client
            .get(&url)
            .header("X-Environment-Key", KEY)
            .header("If-Modified-Since", modified)
            .send()
            .await
            .unwrap();
        assert_eq!(response.status(), StatusCode::NOT_MODIFIED);
        assert_eq!(response.bytes().await.unwrap().len(), 0);
    }
    let log = upstream.store().log(Some(KEY));
    assert_eq!(
        log.iter().map(|seen| (seen.tls, seen.status)).collect::<Vec<_>>(),
        [(false, 200), (false, 304), (true, 200), (true, 304)]
    );
}

#[tokio::test]
async fn path_without_slash_is_redirected() {
    let (upstream, client) = upstream().await;
    let response = client
        .get(format!("{}environment-document", upstream.api_url()))
        .header("X-Environment-Key", KEY)
        .send()
        .await
        .unwrap();
    assert_eq!(response.status(), StatusCode::MOVED_PERMANENTLY);
    assert_eq!(response.headers()["location"], "/api/v1/environment-document/");
}

/// The five kinds of changes that a conditional request does not find.
#[tokio::test]
async fn silent_changes_are_visible_only_without_condition() {
    let (upstream, client) = upstream().await;
    let variants = json!([
        {"multivariate_feature_option": {"id": 7, "value": "red"}, "percentage_allocation": 100.0},
        {"multivariate_feature_option": {"id": 8, "value": "blue"}, "percentage_allocation": 0.0},
    ]);
    let state = json!({"feature": {"id": 1, "name": "a"}, "enabled": false, "feature_state_value": null,
        "multivariate_feature_state_values": variants});
    let mut document = document();
    document["project"] = json!({"hide_disabled_flags": false});
    document["feature_states"] = json!([state]);
    document["identity_overrides"][0]["identity_features"] = json!([state]);
    upstream.store().put(KEY, &document.to_string()).unwrap();
    let control = format!("http://{}/environments/{KEY}/silent-change", upstream.control_address());
    let of_api = |since: Option<&str>| {
        let request =
            client.get(format!("{}environment-document/", upstream.api_url())).header("X-Environment-Key", KEY);
        since.map_or(request.try_clone().unwrap(), |since| request.header("If-Modified-Since", since)).send()
    };
    let variant = "multivariate_feature_state_values";
    for (change, place, value) in [
        (
            json!({"kind": "variantValue", "feature": "a", "option": 8, "value": "green"}),
            format!("/feature_states/0/{variant}/1/multivariate_feature_option/value"),
            json!("green"),
        ),
        (
            json!({"kind": "overrideVariant", "identifier": "user 0", "feature": "a", "option": 8}),
            format!("/identity_overrides/0/identity_features/0/{variant}/1/percentage_allocation"),
            json!(100.0),
        ),
        (
            json!({"kind": "identityDeleted", "identifier": "user 0"}),
            "/identity_overrides/0/identifier".to_owned(),
            json!("user 1"),
        ),
        (json!({"kind": "hideDisabledFlags", "hide": true}), "/project/hide_disabled_flags".to_owned(), json!(true)),
        (
            json!({"kind": "versionLive", "feature": "a", "change": {"enabled": true}}),
            "/feature_states/0/enabled".to_owned(),
            json!(true),
        ),
    ] {
        let before = of_api(None).await.unwrap();
        let (modified, tag) = (before.headers()["last-modified"].to_str().unwrap().to_owned(), "etag");
        assert!(before.headers().get(tag).is_none(), "the API sends no entity tag");
        let response = client.put(&control).body(change.to_string()).send().await.unwrap();
        assert_eq!(response.status(), StatusCode::OK, "{change}");
        assert_eq!(of_api(Some(&modified)).await.unwrap().status(), StatusCode::NOT_MODIFIED, "{change}");
        let after: Value = of_api(None).await.unwrap().json().await.unwrap();
        assert_eq!(after.pointer(&place), Some(&value), "{change}");
        assert_eq!(after["updated_at"], document["updated_at"], "{change}");
    }
    let unknown = SilentChange::IdentityDeleted { identifier: "user 0".to_owned() };
    assert!(upstream.store().change_silently(KEY, &unknown).is_err(), "it is gone already");
}

#[tokio::test]
async fn pages_link_to_next_page() {
    let (upstream, client) = upstream().await;
    upstream.store().set(KEY, Settings { page_size: Some(2), ..Settings::default() }).unwrap();
    let mut target = "/api/v1/environment-document/".to_owned();
    let mut sizes = Vec::new();
    loop {
        let url = format!("{}{}", upstream.api_url().trim_end_matches("/api/v1/"), target);
        let response = client.get(url).header("X-Environment-Key", KEY).send().await.unwrap();
        let link = response.headers().get("link").map(|link| link.to_str().unwrap().to_owned());
        let body: Value = response.json().await.unwrap();
        sizes.push(body["identity_overrides"].as_array().unwrap().len());
        let Some(link) = link else { break };
        target = link.strip_prefix('<').unwrap().strip_suffix(r#">; rel="next""#).unwrap().to_owned();
    }
    assert_eq!(sizes, [2, 2, 1]);
}

#[tokio::test]
async fn faults_occur_as_often_as_scripted() {
    let (upstream, client) = upstream().await;
    let status = |code| Fault::Status { code, body: String::new(), retry_after: Some("7".to_owned()) };
    upstream
        .store()
        .script(KEY, [Scripted { fault: status(429), times: Some(2) }, Scripted { fault: status(503), times: Some(1) }])
        .unwrap();
    let mut codes = Vec::new();
    for _ in 0..4 {
        let response = fetch(&client, &upstream).await.unwrap();
        assert_eq!(response.headers().get("retry-after").is_some(), response.status() != StatusCode::OK);
        codes.push(response.status().as_u16());
    }
    assert_eq!(codes, [429, 429, 503, 200]);
}

#[tokio::test]
async fn bodies_break_as_scripted() {
    let (upstream, client) = upstream().await;
    let store = upstream.store();
    let whole = fetch(&client, &upstream).await.unwrap().bytes().await.unwrap().len();

    store.script(KEY, always(Fault::BrokenJson)).unwrap();
    let body = fetch(&client, &upstream).await.unwrap().bytes().await.unwrap();
    assert!(!body.is_empty() && body.len() < whole && serde_json::from_slice::<Value>(&body).is_err());

    for fault in [Fault::Truncate { bytes: 10 }, Fault::Reset { bytes: 10 }, Fault::WrongLength { by: 5 }] {
        store.script(KEY, always(fault.clone())).unwrap();
        let response = fetch(&client, &upstream).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK, "{fault:?}");
        assert!(response.bytes().await.is_err(), "{fault:?}");
    }
    store.script(KEY, always(Fault::WrongLength { by: -5 })).unwrap();
    assert_eq!(fetch(&client, &upstream).await.unwrap().bytes().await.unwrap().len(), whole - 5);

    store.script(KEY, always(Fault::Reset { bytes: 0 })).unwrap();
    assert!(fetch(&client, &upstream).await.is_err());

    store.script(KEY, always(Fault::Drip { bytes: whole / 4, millis: 20 })).unwrap();
    let start = Instant::now();
    assert_eq!(fetch(&client, &upstream).await.unwrap().bytes().await.unwrap().len(), whole);
    assert!(start.elapsed() >= Duration::from_millis(80));

    store.script(KEY, []).unwrap();
    assert_eq!(fetch(&client, &upstream).await.unwrap().status(), StatusCode::OK);
}

#[tokio::test]
async fn stream_announces_change() {
    let (upstream, client) = upstream().await;
    let mut stream =
        client.get(format!("{}sse/environments/client/stream", upstream.realtime_url())).send().await.unwrap();
    assert_eq!(stream.headers()["content-type"], "text/event-stream");
    assert_eq!(stream.chunk().await.unwrap().unwrap(), ": connected\n\n");
    upstream.store().change_flag(KEY, "a", &FlagChange { enabled: Some(true), value: None }).unwrap();
    let event = String::from_utf8(stream.chunk().await.unwrap().unwrap().to_vec()).unwrap();
    assert!(event.starts_with("event: environment_updated\ndata: {\"updated_at\": "), "{event}");
    let unknown =
        client.get(format!("{}sse/environments/nobody/stream", upstream.realtime_url())).send().await.unwrap();
    assert_eq!(unknown.status(), StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn control_side_changes_environments_over_http() {
    let (upstream, client) = upstream().await;
    let control = format!("http://{}", upstream.control_address());
    let put = async |path: &str, body: Value| {
        let response = client.put(format!("{control}{path}")).body(body.to_string()).send().await.unwrap();
        (response.status().as_u16(), response.text().await.unwrap())
    };
    assert_eq!(put("/environments/ser.two", document()).await, (200, "{}".to_owned()));
    assert_eq!(put("/environments/ser.two/flags/a", json!({"enabled": true, "value": "on"})).await.0, 200);
    assert_eq!(put("/environments/ser.two/settings", json!({"pageSize": 3})).await.0, 200);
    assert_eq!(
        put("/environments/ser.two/faults", json!([{"fault": {"kind": "brokenJson"}, "times": 1}])).await.0,
        200
    );
    assert_eq!(
        put("/environments/ser.two/flags/b", json!({})).await,
        (400, "no feature `b` in the document; it has: a\n".to_owned())
    );
    assert_eq!(put("/environments/two", document()).await.0, 400);
    assert_eq!(put("/environments/ser.none/faults", json!([])).await.0, 400);

    let url = format!("{}environment-document/", upstream.api_url());
    let broken = client.get(&url).header("X-Environment-Key", "ser.two").send().await.unwrap();
    assert!(broken.json::<Value>().await.is_err());
    let body: Value =
        client.get(&url).header("X-Environment-Key", "ser.two").send().await.unwrap().json().await.unwrap();
    assert_eq!(body["feature_states"][0]["enabled"], true);
    assert_eq!(body["feature_states"][0]["feature_state_value"], "on");
    assert_eq!(body["identity_overrides"].as_array().unwrap().len(), 3);

    let log: Value = client.get(format!("{control}/requests?key=ser.two")).send().await.unwrap().json().await.unwrap();
    assert_eq!(
        log.as_array().unwrap().iter().map(|seen| seen["faulty"].as_bool().unwrap()).collect::<Vec<_>>(),
        [true, false]
    );
    let authority = client.get(format!("{control}/ca.pem")).send().await.unwrap().text().await.unwrap();
    assert_eq!(authority, upstream.ca_pem());
}

#[tokio::test]
async fn uses_of_flags_are_added_up_by_environment() {
    let (upstream, client) = upstream().await;
    let send = async |key: &str, body: &str| {
        let request = client.post(format!("{}analytics/flags/", upstream.api_url())).header("X-Environment-Key", key);
        request.body(body.to_owned()).send().await.unwrap().status()
    };
    assert_eq!(send(KEY, r#"{"a": 3}"#).await, StatusCode::OK);
    assert_eq!(send("client", r#"{"a": 4, "b": 1}"#).await, StatusCode::OK);
    assert_eq!(send("ser.other", r#"{"a": 100}"#).await, StatusCode::FORBIDDEN);
    assert_eq!(send(KEY, r#"{"a": "100"}"#).await, StatusCode::BAD_REQUEST);
    let uses = upstream.store().uses(KEY).unwrap();
    assert_eq!(json!(uses), json!({"a": 7, "b": 1}));
    let control = format!("http://{}/environments/{KEY}/uses", upstream.control_address());
    let read: Value = client.get(control).send().await.unwrap().json().await.unwrap();
    assert_eq!(read, json!(uses));
    assert_eq!(upstream.store().log(Some(KEY)).len(), 2);
}
