//! A publication names the flags that it changed: in the status, in its Event, in the history and in a metric.

use serde_json::{Value, json};

use super::{CORE, Cluster, Operator, document, fenv, flags};

/// Environment with features `a` and `b`, whose values change.
struct Story {
    cluster: Cluster,
    operator: Operator,
    generation: i64,
}

impl Story {
    fn new() -> Self {
        let cluster = Cluster::default();
        Self { operator: Operator::start(&cluster), cluster, generation: 0 }
    }

    /// Reconciles with these features at the source: name and value.
    async fn turn(&mut self, features: &[(&str, &str)], spec: &Value) -> Vec<String> {
        let mut with_all = document("a");
        let states: Vec<Value> = (1..)
            .zip(features)
            .map(|(id, (name, value))| {
                let mut state = document(name)["feature_states"][0].clone();
                (state["feature"]["id"], state["django_id"]) = (json!(id), json!(id));
                state["feature_state_value"] = json!(value);
                state
            })
            .collect();
        with_all["feature_states"] = json!(states);
        self.cluster.put(&flags(&with_all));
        self.generation += 1;
        let mut object = fenv(self.generation, spec);
        if self.generation > 1 {
            object["status"] = self.cluster.last_status();
        }
        self.operator.turn(object).await.1
    }

    fn status(&self) -> Value {
        self.cluster.last_status()
    }

    fn metric(&self) -> String {
        let text = self.operator.metrics.text().unwrap();
        let line = text.lines().find(|line| line.starts_with("remora_environment_changed_flags_total{"));
        line.and_then(|line| line.rsplit(' ').next()).unwrap_or("none").to_owned()
    }
}

#[tokio::test]
async fn publication_names_changed_flags_without_values() {
    let mut story = Story::new();
    story.turn(&[("a", "canary-1"), ("b", "1")], &json!({})).await;
    assert_eq!((&story.status()["changes"], story.metric().as_str()), (&Value::Null, "none"));
    let first = story.status()["revision"].clone();
    story.turn(&[("a", "canary-2"), ("c", "1")], &json!({})).await;
    let status = story.status();
    let changes = json!({"previous": first, "count": 3, "changed": ["a"], "added": ["c"], "removed": ["b"]});
    assert_eq!(status["changes"], changes);
    assert!(status["publishedAt"].is_string(), "{status}");
    let note = story.cluster.notes().pop().unwrap();
    let revision = status["revision"].as_str().unwrap();
    assert_eq!(
        note,
        format!("revision {revision} is published: 3 flags changed: \"a\", \"c\" (added), \"b\" (removed)")
    );
    assert_eq!(story.metric(), "3");
    let record = story.cluster.get(CORE).unwrap()["metadata"]["annotations"]["remora.dev/record"].to_string();
    assert!(!record.contains("canary") && !status.to_string().contains("canary"), "{record} {status}");
}

#[tokio::test]
async fn each_change_has_its_own_event_and_stays_in_history() {
    let mut story = Story::new();
    story.turn(&[("a", "1"), ("b", "1")], &json!({})).await;
    let calls = story.turn(&[("a", "2"), ("b", "1")], &json!({})).await;
    assert!(calls.contains(&"event Published".to_owned()), "{calls:?}");
    let second = story.status()["changes"].clone();
    let calls = story.turn(&[("a", "2"), ("b", "2")], &json!({})).await;
    assert!(calls.contains(&"event Published".to_owned()), "{calls:?}");
    assert_eq!(story.status()["changes"]["changed"], json!(["b"]));
    assert_eq!(story.status()["history"][0]["changes"], second);
    assert_eq!(story.status()["history"][1]["changes"], Value::Null);

    // Another process reads the changes back, and a pin names what going back changed.
    story.operator = Operator::start(&story.cluster);
    let first = story.status()["history"][1]["revision"].clone();
    story.turn(&[("a", "2"), ("b", "2")], &json!({"pin": first})).await;
    assert_eq!(story.status()["changes"]["changed"], json!(["a", "b"]));
    assert_eq!(story.status()["history"][0]["changes"]["changed"], json!(["b"]));
}

#[tokio::test]
async fn change_is_compared_with_published_revision_after_failed_publication() {
    let mut story = Story::new();
    story.turn(&[("a", "1"), ("b", "1")], &json!({})).await;
    let first = story.status()["revision"].clone();
    story.cluster.refuse(CORE, 403, "no");
    story.turn(&[("a", "2"), ("b", "1")], &json!({})).await;
    assert_eq!(story.status()["revision"], first);
    story.cluster.relent();
    story.turn(&[("a", "2"), ("b", "2")], &json!({})).await;
    let changes = story.status()["changes"].clone();
    assert_eq!((&changes["previous"], &changes["changed"]), (&first, &json!(["a", "b"])));
    assert_eq!(story.metric(), "2");
}
