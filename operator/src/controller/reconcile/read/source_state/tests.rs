use std::{cmp::Reverse, collections::BinaryHeap};

use super::*;
use crate::{
    api::Uid,
    controller::reconcile::read::edit_pace::{EDIT_PACE, EDITS_AT_ONCE},
    source::fetch::{BYTES_PER_MINUTE, FullRead, ReadBudget, read_within},
};

const INTERVAL: Duration = Duration::from_secs(30);

/// Records a fetch that found nothing new.
fn unchanged(source: &mut SourceState) {
    source.apply(SourceChange::Unchanged { version: None, is_content_compared: false }, Timing::of(INTERVAL));
}

/// Records a fetch without an answer.
fn failed(source: &mut SourceState) {
    let server = "https://flags.test".parse().unwrap();
    let error = Error::from(fetch::Error::EnvironmentNotFound(server));
    source.apply(SourceChange::Failed(&error), Timing::of(INTERVAL));
}

#[test]
fn change_sets_failures_key_and_next_fetch() {
    let key = EnvironmentKey::new(b"ser.abc").unwrap();
    let timing = Timing { now: Instant::now(), interval: INTERVAL, chance: 0.5 };
    let poll = schedule::after_success(INTERVAL, 0.5);
    let failure = |retry| schedule::after_failure(retry, 1, INTERVAL, 0.5);
    let secret = Error::from(fetch::Error::SecretNotFound("flagsmith".to_owned()));
    let costly = Error::Publish(crate::publish::Error::OutOfMemory { bytes: 2, limit: 1 });
    let version = || CachedVersion::of_server(key.clone());
    let provenance = Provenance { client_key: "abc".to_owned(), updated_at: None };
    let unchanged = |version| SourceChange::Unchanged { version, is_content_compared: true };
    // Columns: change, failures, wait until the next fetch, key in use, pause of the rejected key.
    for (change, failures, wait, has_key, is_rejected) in [
        (SourceChange::StillRefused, 2, failure(Retry::Reference), true, true),
        (SourceChange::NoRoom { expected: Some(1) }, 1, ROOM_WAIT.mul_f64(1.5), true, true),
        (unchanged(None), 0, poll, true, false),
        (unchanged(Some(version())), 0, poll, true, false),
        (SourceChange::Compiled { version: version(), provenance }, 0, poll, true, false),
        (SourceChange::Failed(&secret), 2, failure(secret.retry()), false, true),
        (SourceChange::Failed(&costly), 2, failure(Retry::Costly), true, false),
        (SourceChange::Failed(&Error::SecretsNotAllowed), 2, failure(Retry::AfterEdit), true, true),
    ] {
        let mut source = SourceState {
            failures: 1,
            version: Some(version()),
            rejected_key: Some((key.clone(), timing.now)),
            ..SourceState::default()
        };
        let text = format!("{change:?}");
        source.apply(change, timing);
        assert_eq!(source.failures, failures, "{text}");
        assert_eq!(source.next_fetch(), Some(timing.now + wait), "{text}");
        assert_eq!((source.key().is_some(), source.rejected_key.is_some()), (has_key, is_rejected), "{text}");
    }
}

/// A server may answer "not modified" for ever although its document has changed.
#[test]
fn conditional_fetches_are_followed_by_unconditional_one_after_ten_minutes() {
    let began = Instant::now();
    let version = CachedVersion::of_object("7");
    let mut source =
        SourceState { version: Some(version.clone()), last_document: Some(began), ..SourceState::default() };
    let hint = |source: &SourceState, after: Duration| source.hints(true, INTERVAL, began + after).cached;
    let just_before = schedule::UNCONDITIONAL - Duration::from_secs(1);
    assert_eq!(hint(&source, just_before), Some(version.clone()));
    assert_eq!(hint(&source, schedule::UNCONDITIONAL), None);
    assert_eq!(hint(&source, schedule::UNCONDITIONAL * 2), None, "until it was answered");
    source.last_document = Some(began + schedule::UNCONDITIONAL);
    assert_eq!(hint(&source, schedule::UNCONDITIONAL * 2 - Duration::from_secs(1)), Some(version));
    assert_eq!(source.hints(false, INTERVAL, began).cached, None, "without a snapshot in memory");
    source.failures = 1;
    assert_eq!(hint(&source, schedule::UNCONDITIONAL), None, "after a failure");
}

#[test]
fn trigger_of_webhook_edit_or_person_makes_fetch_unconditional() {
    let now = Instant::now();
    for (trigger, is_whole) in [
        (Trigger::Report, false),
        (Trigger::Fetch, false),
        (Trigger::FetchWhole, true),
        (Trigger::ReferenceChanged, true),
        (Trigger::Requested, true),
    ] {
        let version = Some(CachedVersion::of_object("7"));
        let mut source = SourceState { version, last_document: Some(now), ..SourceState::default() };
        source.apply_triggers(&trigger.into(), now);
        assert_eq!(source.hints(true, INTERVAL, now).cached.is_none(), is_whole, "{trigger:?}");
    }
}

/// Uses of flags are sent with the key between two fetches.
#[test]
fn key_is_not_used_after_its_owner_withdrew_it() {
    let key = EnvironmentKey::new(b"ser.abc").unwrap();
    let accepted = || {
        let version = Some(CachedVersion::of_server(key.clone()));
        SourceState { version, key_read: Some(Instant::now()), ..SourceState::default() }
    };
    let secret = || "flagsmith".to_owned();
    let (name, key) = (secret(), "key".to_owned());
    for withdrawn in [
        fetch::Error::SecretNotFound(secret()),
        fetch::Error::SecretNotConsented(secret()),
        fetch::Error::SecretInvalid { name, key, problem: "is empty" },
        fetch::Error::ReadFailed { what: secret(), problem: "forbidden".to_owned() },
    ] {
        let mut source = accepted();
        assert!(source.key().is_some());
        let withdrawn = Error::from(withdrawn);
        source.apply(SourceChange::Failed(&withdrawn), Timing::of(INTERVAL));
        assert_eq!(source.key(), None, "{withdrawn}");
    }
    let mut source = accepted();
    failed(&mut source);
    assert!(source.key().is_some(), "a failure of the server says nothing about the Secret");
}

#[test]
fn fetch_compares_content_after_rest_of_budget() {
    let began = Instant::now();
    let source = SourceState { last_content: Some(began), ..SourceState::default() };
    let comparison = |after: Duration| source.hints(true, INTERVAL, began + after).comparison;
    assert_eq!(comparison(INTERVAL - Duration::from_secs(1)), Comparison::Time);
    assert_eq!(comparison(INTERVAL), Comparison::Content);
    assert_eq!(SourceState::default().hints(true, INTERVAL, began).comparison, Comparison::Content);
}

#[test]
fn stream_event_does_not_shorten_back_off_of_failing_source() {
    let now = Instant::now();
    let mut source = SourceState::default();
    failed(&mut source);
    for trigger in [Trigger::Report, Trigger::Fetch, Trigger::FetchWhole] {
        assert!(!source.is_due(&trigger.into(), true, now), "{trigger:?}");
    }
    let none = Triggers::default();
    assert!(!source.is_due(&none, true, now));
    source.apply_triggers(&Trigger::ReferenceChanged.into(), now);
    assert!(source.is_due(&Trigger::ReferenceChanged.into(), false, now));
    assert!(source.is_due(&Trigger::Requested.into(), false, now));
    unchanged(&mut source);
    assert!(!source.is_due(&Trigger::Report.into(), false, now) && source.is_due(&Trigger::Fetch.into(), false, now));
    assert!(source.is_due(&none, true, now), "nothing is published");
    assert!(source.is_due(&none, false, now + Duration::from_secs(34)));
}

#[test]
fn many_edits_cause_one_fetch_in_each_pace() {
    let began = Instant::now();
    let mut source = SourceState::default();
    let (mut fetches, mut time) = (Vec::new(), Duration::ZERO);
    while time < 4 * EDIT_PACE {
        let now = began + time;
        source.apply_triggers(&Trigger::ReferenceChanged.into(), now);
        if source.is_due(&Trigger::ReferenceChanged.into(), false, now) {
            fetches.push(time);
            // The server refuses, and asks for a long pause.
            source.next_fetch = Some(now + Duration::from_secs(900));
        }
        time += Duration::from_millis(50);
    }
    let (at_once, later) = fetches.split_at(EDITS_AT_ONCE as usize);
    assert!(at_once.iter().all(|time| *time < EDIT_PACE), "{at_once:?}");
    assert_eq!(later, [1, 2, 3].map(|number| number * EDIT_PACE));
}

/// Somebody who edits a referenced object again and again delays no change that the server has reported.
#[test]
fn change_is_fetched_at_once_although_edits_wait_for_their_pace() {
    let now = Instant::now();
    let mut source = SourceState::default();
    unchanged(&mut source);
    for _ in 0..100 {
        source.apply_triggers(&Trigger::ReferenceChanged.into(), now);
    }
    source.fetch_at(now + EDIT_PACE);
    let mut triggers = Triggers::from(Trigger::FetchWhole);
    triggers.insert(Trigger::ReferenceChanged);
    source.apply_triggers(&triggers, now);
    assert!(source.is_due(&triggers, false, now));
    assert!(!source.is_due(&Trigger::ReferenceChanged.into(), false, now), "the edit waits for its pace");
}

#[test]
fn many_generations_cause_one_fetch_in_each_pace() {
    let mut source = SourceState::default();
    source.start_generation(Instant::now());
    let none = Triggers::default();
    assert!(source.is_due(&none, false, Instant::now()), "the first edit is fetched at once");
    for _ in 0..100 {
        failed(&mut source);
        source.start_generation(Instant::now());
    }
    let now = Instant::now();
    // Without a published snapshot, too.
    for is_lost in [false, true] {
        assert!(!source.is_due(&none, is_lost, now) && source.is_due(&none, is_lost, now + EDIT_PACE));
    }
}

/// Size of the document of each environment, in bytes: 1,000 environments of one server.
fn sizes() -> Vec<usize> {
    [(15 << 10, 700), (228 << 10, 250), (5 << 20, 50)].into_iter().flat_map(|(size, count)| vec![size; count]).collect()
}

/// Polls of 1,000 environments over half an hour, and the full reads among them.
#[tokio::test(start_paused = true)]
async fn full_reads_of_thousand_environments_stay_within_budget_of_bytes() {
    let (sizes, budget, began) = (sizes(), ReadBudget::default(), Instant::now());
    let mut sources: Vec<SourceState> = sizes.iter().map(|_| SourceState::default()).collect();
    let mut polls: BinaryHeap<Reverse<(Instant, usize)>> = BinaryHeap::new();
    for number in 0..sizes.len() {
        polls.push(Reverse((began + schedule::first_fetch_delay(&Uid::from(&*number.to_string()), INTERVAL), number)));
    }
    let mut minutes = vec![0; 30];
    let mut longest = vec![Duration::ZERO; sizes.len()];
    while let Some(Reverse((now, number))) = polls.pop() {
        let minute = now.duration_since(began).as_secs() / 60;
        let Some(bytes) = minutes.get_mut(usize::try_from(minute).unwrap()) else { break };
        tokio::time::advance(now.duration_since(Instant::now())).await;
        let source = &mut sources[number];
        let hints = source.hints(true, budget.rest(&Uid::from(&*number.to_string()), INTERVAL), now);
        if hints.comparison == Comparison::Content {
            *bytes += sizes[number];
            let origin = "https://flags.test".parse().unwrap();
            let read = FullRead { origin, bytes: sizes[number], took: Duration::from_millis(5) };
            budget.record("shop", &Uid::from(&*number.to_string()), &read, INTERVAL, now);
            // The first minutes have no rest to compare with: the budget learns the sizes from the first reads.
            if let Some(last) = source.last_content.replace(now).filter(|_| minute > 5) {
                longest[number] = longest[number].max(now.duration_since(last));
            }
        }
        unchanged(source);
        polls.push(Reverse((source.next_fetch().unwrap(), number)));
    }
    // The first minute reads every document at least once.
    let steady = &minutes[5..];
    let mean = steady.iter().sum::<usize>() / steady.len();
    assert!(mean <= BYTES_PER_MINUTE && mean > BYTES_PER_MINUTE / 2, "{mean} bytes a minute");
    assert!(steady.iter().all(|bytes| *bytes <= BYTES_PER_MINUTE * 5 / 4), "{steady:?}");
    for (number, longest) in longest.into_iter().enumerate() {
        let within = read_within(budget.rest(&Uid::from(&*number.to_string()), INTERVAL), INTERVAL);
        assert!(longest <= within.mul_f64(1.05), "{} bytes: {longest:?}, not {within:?}", sizes[number]);
        assert!(sizes[number] > 1 << 20 || longest <= Duration::from_secs(33), "{} bytes: {longest:?}", sizes[number]);
    }
}
