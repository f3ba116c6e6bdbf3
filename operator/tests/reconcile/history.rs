//! Earlier revisions are kept up to a limit, and a pin rolls back to them.

use serde_json::{Value, json};

use super::{
    CORE, Operator,
    cluster::{Cluster, fenv},
    document, flags, is, writes,
};

/// Environment with one feature whose name changes with every revision.
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

    /// Reconciles with this feature at the source and this spec. Returns the calls.
    async fn turn(&mut self, feature: &str, spec: &Value) -> Vec<String> {
        self.cluster.put(&flags(&document(feature)));
        self.generation += 1;
        let mut object = fenv(self.generation, spec);
        if self.generation > 1 {
            object["status"] = self.cluster.last_status();
        }
        self.operator.turn(object).await.1
    }

    fn restart(&mut self) {
        self.operator = Operator::start(&self.cluster);
    }

    fn revision(&self) -> String {
        self.cluster.last_status()["revision"].as_str().unwrap().to_owned()
    }

    fn published(&self) -> Value {
        self.cluster.get(CORE).unwrap()["binaryData"].clone()
    }

    /// Returns the revisions that the status lists.
    fn history(&self) -> Vec<String> {
        let status = self.cluster.last_status();
        let history = status["history"].as_array().cloned().unwrap_or_default();
        history.iter().map(|past| past["revision"].as_str().unwrap().to_owned()).collect()
    }

    /// Returns the copies of earlier revisions in the cluster.
    fn kept(&self) -> Vec<String> {
        let names = self.cluster.names();
        names.iter().filter_map(|name| name.strip_prefix("remora-storefront-v3-history-")).map(str::to_owned).collect()
    }
}

fn sorted(mut names: Vec<String>) -> Vec<String> {
    names.sort();
    names
}

#[tokio::test]
async fn replaced_revision_is_archived_before_next_is_published() {
    let mut story = Story::new();
    story.turn("a", &json!({})).await;
    let (first, bytes) = (story.revision(), story.published());
    let calls = story.turn("b", &json!({})).await;
    let copy = format!("remora-storefront-v3-history-{first}-core");
    assert_eq!(writes(&calls), [&format!("patch {copy}"), &format!("patch {CORE}")]);
    assert_eq!(story.history(), [first]);
    let kept = story.cluster.get(&copy).unwrap();
    assert_eq!(kept["binaryData"], bytes);
    assert_eq!(kept["metadata"]["ownerReferences"][0]["uid"], "uid-1");
    assert_eq!(kept["metadata"]["labels"]["app.kubernetes.io/managed-by"], "remora");
}

#[tokio::test]
async fn history_keeps_no_more_than_limit() {
    let mut story = Story::new();
    let two = json!({"revisionHistoryLimit": 2});
    let mut revisions = Vec::new();
    for feature in ["a", "b", "c", "d"] {
        story.turn(feature, &two).await;
        revisions.push(story.revision());
    }
    assert_eq!(story.history(), [revisions[2].clone(), revisions[1].clone()]);
    assert_eq!(story.kept(), sorted(story.history().iter().map(|revision| format!("{revision}-core")).collect()));
    // With a lower limit, the surplus is deleted.
    story.turn("d", &json!({"revisionHistoryLimit": 0})).await;
    assert!(story.history().is_empty() && story.kept().is_empty());
    story.turn("e", &json!({"revisionHistoryLimit": 0})).await;
    assert!(story.history().is_empty() && story.kept().is_empty());
}

#[tokio::test]
async fn pin_publishes_earlier_revision_until_removed() {
    let mut story = Story::new();
    story.turn("a", &json!({})).await;
    let (first, bytes) = (story.revision(), story.published());
    story.turn("b", &json!({})).await;
    let second = story.revision();

    let pinned = json!({"pin": first});
    story.turn("b", &pinned).await;
    assert_eq!((story.revision(), story.published()), (first.clone(), bytes.clone()));
    assert_eq!(story.history(), std::slice::from_ref(&second));
    let status = story.cluster.last_status();
    is(&status, "Published", ("True", "Pinned"));
    is(&status, "Ready", ("True", "Published"));
    is(&status, "Stale", ("False", "Pinned"));
    is(&status, "Fetched", ("True", "Synced"));

    // New documents wait while the pin is set, also after a restart.
    story.turn("c", &pinned).await;
    story.restart();
    story.turn("c", &pinned).await;
    assert_eq!((story.revision(), story.published()), (first.clone(), bytes.clone()));
    // The operator still restores a deleted object, and a failing source changes nothing.
    story.cluster.take(CORE);
    story.turn("c", &pinned).await;
    assert_eq!(story.published(), bytes);

    story.turn("c", &json!({})).await;
    assert_ne!(story.revision(), first);
    assert_eq!(story.history(), [first, second]);
    is(&story.cluster.last_status(), "Published", ("True", "Published"));
}

#[tokio::test]
async fn unknown_pin_lists_known_revisions_and_changes_nothing() {
    let mut story = Story::new();
    story.turn("a", &json!({})).await;
    let first = story.revision();
    story.turn("b", &json!({})).await;
    let (second, bytes) = (story.revision(), story.published());

    let calls = story.turn("c", &json!({"pin": "0123456789ab"})).await;
    assert!(!calls.iter().any(|call| call.starts_with("patch")), "{calls:?}");
    assert_eq!((story.revision(), story.published()), (second.clone(), bytes));
    let status = story.cluster.last_status();
    is(&status, "Accepted", ("False", "UnknownRevision"));
    is(&status, "Ready", ("True", "Published"));
    let message = status["conditions"][0]["message"].as_str().unwrap();
    assert!(message.contains(&format!("{second} (is published), {first} (was published at 20")), "{message}");

    story.turn("c", &json!({"pin": first})).await;
    is(&story.cluster.last_status(), "Accepted", ("True", "Accepted"));
    assert_eq!(story.revision(), first);
}

/// The revision that a pin keeps out was chosen before the pin, and its publication failed so far.
#[tokio::test]
async fn pin_keeps_out_revision_whose_publication_failed() {
    for pinned in ["the published revision", "0123456789ab"] {
        let mut story = Story::new();
        story.turn("a", &json!({"revisionHistoryLimit": 0})).await;
        let (first, bytes) = (story.revision(), story.published());
        story.cluster.refuse(CORE, 403, "exceeded quota: few");
        story.turn("b", &json!({"revisionHistoryLimit": 0})).await;
        assert_eq!(story.revision(), first);
        story.cluster.relent();

        let is_known = pinned != "0123456789ab";
        let pin = if is_known { &first } else { pinned };
        let calls = story.turn("b", &json!({"revisionHistoryLimit": 0, "pin": pin})).await;
        assert_eq!((story.revision(), story.published()), (first.clone(), bytes), "{calls:?}");
        let status = story.cluster.last_status();
        let expected = if is_known { ("True", "Accepted") } else { ("False", "UnknownRevision") };
        is(&status, "Accepted", expected);
        let message = status["conditions"][0]["message"].as_str().unwrap();
        assert!(is_known || message.contains(&format!("({first} (is published))")), "{message}");
    }
}

#[tokio::test]
async fn damaged_copy_is_not_published() {
    let mut story = Story::new();
    story.turn("a", &json!({})).await;
    let first = story.revision();
    story.turn("b", &json!({})).await;
    let second = story.revision();
    let copy = format!("remora-storefront-v3-history-{first}-core");
    let mut altered = story.cluster.get(&copy).unwrap();
    altered["binaryData"]["core"] = json!("AAAA");
    story.cluster.put(&altered);
    story.turn("b", &json!({"pin": first})).await;
    is(&story.cluster.last_status(), "Accepted", ("False", "UnknownRevision"));
    assert_eq!(story.revision(), second);
}

#[tokio::test]
async fn pinned_revision_outlives_history_limit() {
    let mut story = Story::new();
    let one = |pin: &str| json!({"revisionHistoryLimit": 1, "pin": pin});
    story.turn("a", &one("")).await;
    let first = story.revision();
    story.turn("b", &one("")).await;
    story.turn("b", &one(&first)).await;
    assert_eq!(story.kept().len(), 2, "the pinned one and the one before it");
    story.turn("c", &one("")).await;
    assert_eq!(story.history(), [first]);
    assert_eq!(story.kept().len(), 1);
}

#[tokio::test]
async fn refused_copy_does_not_stop_publication() {
    let mut story = Story::new();
    story.turn("a", &json!({})).await;
    let first = story.revision();
    story.cluster.refuse(&format!("remora-storefront-v3-history-{first}-core"), 403, "exceeded quota: few");
    story.turn("b", &json!({})).await;
    is(&story.cluster.last_status(), "Published", ("True", "Published"));
    assert_ne!(story.revision(), first);
    assert!(story.history().is_empty());
}
