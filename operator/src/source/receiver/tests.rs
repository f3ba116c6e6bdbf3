use ring::hmac;
use tokio::sync::mpsc;

use super::*;
use crate::source::trigger::TriggerRequest;

const SECRET: &str = "a secret of the shop";
const BODY: &[u8] = b"{\"event_type\":\"FLAG_UPDATED\"}";

fn sign(secret: &str, body: &[u8]) -> String {
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes()), body);
    tag.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn receiver() -> (WebhookReceiver, TriggerSender, mpsc::Receiver<TriggerRequest>) {
    let (sender, requests) = TriggerSender::new();
    let receiver = WebhookReceiver::default();
    receiver.set_leading(true);
    set_target(&receiver, "storefront", SECRET, &sender);
    (receiver, sender, requests)
}

fn shop(name: &str) -> NamespacedName {
    NamespacedName::new("shop", name)
}

fn set_target(receiver: &WebhookReceiver, name: &str, secret: &str, sender: &TriggerSender) {
    receiver.set_target(&shop(name), &"uid".into(), SigningSecret::new(secret.as_bytes()), sender);
}

/// Returns the names of the environments that were triggered so far.
async fn triggered(requests: &mut mpsc::Receiver<TriggerRequest>) -> Vec<String> {
    // Each task of a trigger needs one turn, and time stands still.
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
    let mut names = Vec::new();
    while let Ok(request) = requests.try_recv() {
        assert_eq!(request.trigger, Trigger::FetchWhole);
        names.push(request.environment.name);
    }
    names.sort();
    names
}

#[tokio::test(start_paused = true)]
async fn signed_webhook_triggers_fetch() {
    let (receiver, _, mut requests) = receiver();
    let signature = sign(SECRET, BODY);
    assert_eq!(receiver.receive("shop", Some("storefront"), Some(&signature), BODY), Verdict::Accepted);
    assert_eq!(triggered(&mut requests).await, ["storefront"]);
}

#[tokio::test(start_paused = true)]
async fn unsigned_or_misdirected_webhook_triggers_nothing() {
    let (receiver, sender, mut requests) = receiver();
    set_target(&receiver, "other", "another secret, as long", &sender);
    let signature = sign(SECRET, BODY);
    for (namespace, name, signature, body) in [
        ("shop", "storefront", None, BODY),
        ("shop", "storefront", Some("00"), BODY),
        ("shop", "storefront", Some(signature.as_str()), b"{}".as_slice()),
        ("shop", "other", Some(signature.as_str()), BODY),
        ("shop", "unknown", Some(signature.as_str()), BODY),
        ("elsewhere", "storefront", Some(signature.as_str()), BODY),
    ] {
        assert_eq!(receiver.receive(namespace, Some(name), signature, body), Verdict::Refused, "{namespace}/{name}");
    }
    assert!(triggered(&mut requests).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn webhook_that_no_known_secret_signs_is_repeated_until_first_pass_ends() {
    let (receiver, sender, mut requests) = receiver();
    let receive = |name: &str| receiver.receive("shop", Some(name), Some(&sign(SECRET, BODY)), BODY);
    let passes = [receiver.first_pass(), receiver.first_pass()];
    assert_eq!(receive("search"), Verdict::Starting);
    assert_eq!(receive("storefront"), Verdict::Accepted);
    assert_eq!(receiver.receive("shop", Some("search"), Some("no signature"), BODY), Verdict::Refused);

    set_target(&receiver, "search", SECRET, &sender);
    receiver.set_target(&shop("without"), &"uid".into(), None, &sender);
    let [first, second] = passes;
    assert!(second.has_seen(&shop("search")) && second.has_seen(&shop("without")));
    assert!(!second.has_seen(&shop("unknown")));
    assert_eq!(receive("search"), Verdict::Accepted);
    drop(first);
    assert_eq!(receive("unknown"), Verdict::Starting);
    drop(second);
    assert_eq!(receive("unknown"), Verdict::Refused);
    assert_eq!(triggered(&mut requests).await, ["search", "storefront"]);
}

#[tokio::test(start_paused = true)]
async fn flood_of_replays_causes_one_fetch_in_each_pause() {
    let (receiver, _, mut requests) = receiver();
    let signature = sign(SECRET, BODY);
    let replay = || receiver.receive("shop", Some("storefront"), Some(&signature), BODY);
    for _ in 0..1000 {
        assert_eq!(replay(), Verdict::Accepted);
    }
    assert_eq!(triggered(&mut requests).await.len(), 1);
    for _ in 0..1000 {
        replay();
    }
    assert!(triggered(&mut requests).await.is_empty());
    tokio::time::advance(PACE).await;
    assert_eq!(triggered(&mut requests).await.len(), 1, "the change after the first fetch is not lost");
    tokio::time::advance(PACE).await;
    assert!(triggered(&mut requests).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn replays_wait_for_pause_of_costly_environment() {
    let (receiver, sender, mut requests) = receiver();
    let signature = sign(SECRET, BODY);
    let replay = || receiver.receive("shop", Some("storefront"), Some(&signature), BODY);
    replay();
    assert_eq!(triggered(&mut requests).await.len(), 1, "the first webhook waits for nothing");
    replay();
    // The fetch ends, and its cost is known. The Secret is read again meanwhile, which keeps the pause.
    receiver.pace(&shop("storefront"), 20 * PACE);
    set_target(&receiver, "storefront", SECRET, &sender);
    let mut fetches = 0;
    for _ in 0..60 {
        tokio::time::advance(PACE).await;
        fetches += triggered(&mut requests).await.len();
        replay();
    }
    assert_eq!(fetches, 3);
    receiver.pace(&shop("storefront"), Duration::ZERO);
    tokio::time::advance(20 * PACE).await;
    triggered(&mut requests).await;
    replay();
    assert!(triggered(&mut requests).await.is_empty(), "no pause is shorter than a second");
}

#[tokio::test(start_paused = true)]
async fn request_to_namespace_is_compared_with_eight_secrets() {
    let (receiver, sender, mut requests) = receiver();
    let secret = |number: usize| format!("another secret {number:03}");
    for number in 0..100 {
        set_target(&receiver, &format!("environment-{number:03}"), &secret(number), &sender);
        set_target(&receiver, &format!("twin-{number:03}"), &secret(number), &sender);
    }
    assert_eq!(receiver.0.targets.lock().secrets("shop", None).len(), targets::SECRETS_MAX);
    let receive =
        |number: usize, name: Option<&str>| receiver.receive("shop", name, Some(&sign(&secret(number), BODY)), BODY);
    // The eight secrets are those of the first environments by name.
    assert_eq!(receive(7, None), Verdict::Accepted);
    assert_eq!(triggered(&mut requests).await, ["environment-007", "twin-007"]);
    assert_eq!(receive(8, None), Verdict::Refused);
    assert_eq!(receive(8, Some("environment-008")), Verdict::Accepted, "its own path has one secret");
    assert_eq!(triggered(&mut requests).await, ["environment-008"]);
    // The place of a removed secret is free.
    receiver.retain(Some("shop"), |environment, _| !environment.name.ends_with("-003"));
    assert_eq!(receive(3, None), Verdict::Refused);
    assert_eq!(receive(8, None), Verdict::Accepted);
}

#[tokio::test(start_paused = true)]
async fn webhook_of_namespace_wakes_environments_with_its_secret() {
    let (receiver, sender, mut requests) = receiver();
    set_target(&receiver, "checkout", SECRET, &sender);
    set_target(&receiver, "other", "another secret, as long", &sender);
    let signature = sign(SECRET, BODY);
    assert_eq!(receiver.receive("shop", None, Some(&signature), BODY), Verdict::Accepted);
    assert_eq!(triggered(&mut requests).await, ["checkout", "storefront"]);
}

#[tokio::test(start_paused = true)]
async fn replica_without_lease_refuses_for_now() {
    let (receiver, sender, mut requests) = receiver();
    let signature = sign(SECRET, BODY);
    let receive = || receiver.receive("shop", Some("storefront"), Some(&signature), BODY);
    receiver.set_leading(false);
    assert_eq!(receive(), Verdict::NotLeading);
    receiver.set_leading(true);
    receiver.set_target(&shop("storefront"), &"uid".into(), None, &sender);
    assert_eq!(receive(), Verdict::Refused);
    set_target(&receiver, "storefront", SECRET, &sender);
    receiver.retain(Some("elsewhere"), |_, _| false);
    assert_eq!(receive(), Verdict::Accepted);
    triggered(&mut requests).await;
    receiver.retain(Some("shop"), |_, uid| uid.as_str() != "uid");
    assert_eq!(receive(), Verdict::Refused, "the environment was deleted");
    assert!(triggered(&mut requests).await.is_empty());
}
