//! Tests that the chart's admission policies equal those that the code generates.
//!
//! `REMORA_REWRITE=1 cargo test -p remora-operator --test policy` rewrites them. `e2e/tests/exclusive/policy.rs`
//! compares their effect on pods with the webhook's on a cluster.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::{fs, path::Path};

use remora_operator::injection::{Config, policy};
use serde::Serialize;

const TEMPLATE: &str = "charts/remora/templates/_policy.tpl";
const IMAGE: &str = "{{ include \"remora.image\" (list . .Values.image.sidecar) }}";
const PULL_POLICY: &str = "{{ .Values.image.sidecar.pullPolicy }}";

/// Returns a configuration with expressions of the chart's values in place of the operator's arguments.
fn config() -> Config {
    Config {
        sidecar_image: IMAGE.to_owned(),
        sidecar_pull_policy: PULL_POLICY.to_owned(),
        own_namespace: "{{ .Release.Namespace }}".to_owned(),
    }
}

fn template() -> String {
    let policy = policy(&config()).unwrap();
    let mut text = "{{/* Generated: REMORA_REWRITE=1 cargo test -p remora-operator --test policy */}}\n".to_owned();
    let mut define = |name: &str, yaml: String| {
        text.push_str(&format!("{{{{- define \"remora.policy.{name}\" -}}}}\n{yaml}{{{{- end }}}}\n"));
    };
    fn yaml(value: &impl Serialize) -> String {
        serde_yaml::to_string(value).unwrap()
    }
    define("variables", yaml(&policy.variables));
    define("plan", yaml(&policy.plan));
    define("patch", format!("{}\n", policy.patch));
    define("refusals", yaml(&policy.refusals));
    define("warnings", yaml(&policy.warnings));
    define("slots", format!("{}\n", policy.slots));
    text
}

#[test]
fn policies_of_chart_equal_generated_ones() {
    let expected = template();
    let actions = expected.replace("{{- define \"remora.policy.", "").replace("{{- end }}", "").replace("{{/*", "");
    assert_eq!(
        actions.replace(IMAGE, "").replace(PULL_POLICY, "").find("{{"),
        None,
        "Helm would read more than its own"
    );
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(TEMPLATE);
    if std::env::var_os("REMORA_REWRITE").is_some() {
        fs::write(&path, &expected).unwrap();
    }
    assert!(
        fs::read_to_string(&path).unwrap_or_default() == expected,
        "{TEMPLATE} is not what the code says: run REMORA_REWRITE=1 cargo test -p remora-operator --test policy, and commit it"
    );
}
