use std::{
    collections::VecDeque,
    sync::atomic::{AtomicUsize, Ordering},
    task::{Context, Wake, Waker},
};

use super::*;

fn limits() -> Limits {
    Limits {
        connections: 8,
        kept: 4,
        small_body: 10,
        small_bytes: 40,
        large_bytes: 100,
        unread_bytes: 1000,
        ..Limits::webhook()
    }
}

fn caller(number: u8) -> Caller {
    Caller::from(IpAddr::from([10, 0, 0, number]))
}

fn exists(slot: &Slot) -> bool {
    slot.slots.state.lock().connections.contains_key(&slot.id)
}

fn enter(slots: &Arc<Slots>, number: u8) -> Slot {
    slots.try_enter(caller(number)).unwrap()
}

/// Reserves bytes without waiting. Returns true on success.
fn reserve(slot: &Slot, bytes: usize) -> bool {
    slot.slots.state.lock().reserve(slot.id, bytes, &slot.slots.limits)
}

#[test]
fn addresses_of_one_machine_count_as_one_caller() {
    let of = |text: &str| Caller::from(text.parse::<IpAddr>().unwrap());
    assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:0:1"));
    assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
    assert_eq!(of("::ffff:10.0.0.1"), of("10.0.0.1"));
    assert_ne!(of("10.0.0.1"), of("10.0.0.2"));
}

#[test]
fn full_listener_closes_connection_of_address_with_most() {
    let slots = Slots::new(limits());
    let flood: Vec<_> = (0..5).map(|_| enter(&slots, 1)).collect();
    let few: Vec<_> = (0..3).map(|_| enter(&slots, 2)).collect();
    let alone = enter(&slots, 3);
    assert!(!exists(&flood[0]) && flood[1..].iter().all(exists), "the oldest of the five");
    assert!(few.iter().all(exists) && exists(&alone));
    // The flood continues, and takes slots only from itself.
    let more: Vec<_> = (0..100).map(|_| enter(&slots, 1)).collect();
    assert!(few.iter().all(exists) && exists(&alone));
    assert_eq!(more.iter().filter(|slot| exists(slot)).count(), 4);
    assert_eq!(slots.count(), 8);
}

#[test]
fn known_address_keeps_places_in_flood_of_many_addresses() {
    let slots = Slots::new(limits());
    let known: Vec<_> = (0..4).map(|_| enter(&slots, 200)).collect();
    known[0].answered(true);
    let flood: Vec<_> = (0..150).map(|number| enter(&slots, number)).collect();
    assert!(known.iter().all(exists));
    // Connections beyond the kept number compete like any others.
    let fifth = enter(&slots, 200);
    let next = enter(&slots, 151);
    assert!(exists(&fifth) && exists(&next) && !known.iter().all(exists));
    assert!(exists(&known[0]), "the useful one goes last");
    assert_eq!(flood.iter().filter(|slot| exists(slot)).count(), 3);
}

#[test]
fn request_being_answered_is_never_aborted() {
    let slots = Slots::new(limits());
    let busy: Vec<_> = (0..8).map(|_| enter(&slots, 1)).collect();
    busy.iter().for_each(Slot::answering);
    assert!(slots.try_enter(caller(2)).is_none(), "it waits");
    assert!(busy.iter().all(exists));
    busy[3].answered(false);
    let next = enter(&slots, 2);
    assert!(exists(&next) && !exists(&busy[3]));
}

#[tokio::test]
async fn caller_waits_until_answer_frees_a_slot() {
    let slots = Slots::new(limits());
    let busy: Vec<_> = (0..8).map(|_| enter(&slots, 1)).collect();
    busy.iter().for_each(Slot::answering);
    let entering = tokio::spawn({
        let slots = Arc::clone(&slots);
        async move { slots.enter(caller(2)).await }
    });
    tokio::task::yield_now().await;
    assert!(!entering.is_finished());
    busy[0].answered(false);
    assert!(exists(&entering.await.unwrap()));
}

#[test]
fn oldest_known_address_is_forgotten() {
    let slots = Slots::new(Limits { connections: 1000, ..limits() });
    for number in 0..=u8::MAX {
        enter(&slots, number).answered(true);
    }
    let known = slots.state.lock().known.clone();
    assert_eq!(known.len(), KNOWN_ADDRESSES);
    assert!(known.contains_key(&caller(u8::MAX)) && !known.contains_key(&caller(0)));
}

#[test]
fn slow_body_of_address_with_most_bytes_is_aborted_for_another() {
    let slots = Slots::new(limits());
    let flood: Vec<_> = (0..4).map(|_| enter(&slots, 1)).collect();
    assert!(flood.iter().all(|slot| reserve(slot, 10)));
    // A further body of the same address waits: its bodies are answered one after the other.
    let own = enter(&slots, 1);
    assert!(!reserve(&own, 10));
    let other = enter(&slots, 2);
    assert!(reserve(&other, 10));
    assert!(!exists(&flood[0]) && flood[1..].iter().all(exists));
    // Large bodies have their own bytes.
    let large = enter(&slots, 3);
    assert!(reserve(&large, 100));
    large.answered(false);
    assert!(reserve(&own, 100), "bytes are given back");
}

#[test]
fn complete_body_is_never_aborted() {
    let slots = Slots::new(limits());
    let complete: Vec<_> = (0..4).map(|_| enter(&slots, 1)).collect();
    for slot in &complete {
        assert!(reserve(slot, 10));
        slot.answering();
    }
    let other = enter(&slots, 2);
    assert!(!reserve(&other, 10));
    complete[2].answered(true);
    assert!(reserve(&other, 10) && complete.iter().all(exists));
}

#[test]
fn known_address_takes_bytes_from_unknown_ones_and_never_the_reverse() {
    let slots = Slots::new(limits());
    let known = enter(&slots, 200);
    known.answered(true);
    let flood: Vec<_> = (0..4).map(|number| enter(&slots, number)).collect();
    assert!(flood.iter().all(|slot| reserve(slot, 10)));
    assert!(reserve(&known, 10), "one of as many bytes makes room");
    let next = enter(&slots, 9);
    assert!(!reserve(&next, 10), "every address has as many bytes as the new one asks for");
    assert!(exists(&known));
}

#[test]
fn address_with_most_unread_bytes_loses_its_oldest_answer() {
    let slots = Slots::new(limits());
    let flood: Vec<_> = (0..3).map(|_| enter(&slots, 1)).collect();
    let mut unread: Vec<_> = flood.iter().map(|slot| slot.sending(300)).collect();
    let other = enter(&slots, 2);
    let read = other.sending(100);
    assert!(flood.iter().all(exists), "exactly as many bytes as may be unread");
    let more = other.sending(1);
    assert!(!exists(&flood[0]) && flood[1..].iter().all(exists) && exists(&other));
    // An answer that was read leaves room.
    unread.pop();
    drop((read, more));
    let next = enter(&slots, 3);
    let _next = next.sending(700);
    assert!(exists(&flood[1]) && exists(&next));
}

#[test]
fn single_answer_may_be_larger_than_all_may_be() {
    let slots = Slots::new(limits());
    let (alone, reads_at_once) = (enter(&slots, 1), enter(&slots, 2));
    drop(reads_at_once.sending(10));
    let _sending = alone.sending(5000);
    assert!(exists(&alone));
    let next = enter(&slots, 2);
    let _sending_next = next.sending(10);
    assert!(!exists(&alone) && exists(&next));
}

#[tokio::test(start_paused = true)]
async fn answers_unread_for_long_are_given_up_before_recent_ones() {
    let slots = Slots::new(limits());
    let slow: Vec<_> = (1..4).map(|number| enter(&slots, number)).collect();
    let _unread: Vec<_> = slow.iter().map(|slot| slot.sending(200)).collect();
    tokio::time::advance(READING_TIME).await;
    let reader = enter(&slots, 9);
    let _read = reader.sending(600);
    assert!(exists(&reader) && !exists(&slow[0]), "it has the most bytes, and the newest answer");
}

/// Counts how often a task is woken.
#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// With a wake-up of all for each answer, 400 bodies would be woken 80,000 times.
#[test]
fn answer_wakes_only_the_body_that_gets_its_bytes() {
    let slots = Slots::new(Limits { connections: 1_000, ..limits() });
    let answering: Vec<Slot> = (0..4).map(|number| enter(&slots, number)).collect();
    for slot in &answering {
        assert!(reserve(slot, 10));
        slot.answering();
    }
    let wakes = Arc::new(Wakes::default());
    let waker = Waker::from(Arc::clone(&wakes));
    let mut task = Context::from_waker(&waker);
    let flood: Vec<Slot> = (0..200).chain(0..200).map(|number: u8| enter(&slots, 10 + number)).collect();
    let mut waiting: Vec<_> = flood.iter().map(|slot| (slot, Box::pin(slot.reserve(10)))).collect();
    assert!(waiting.iter_mut().all(|(_, reserved)| reserved.as_mut().poll(&mut task).is_pending()));
    let (mut busy, mut answers) = (VecDeque::from_iter(&answering), 0);
    while let Some(slot) = busy.pop_front() {
        slot.answered(false);
        answers += 1;
        assert_eq!(wakes.0.load(Ordering::Relaxed), answers.min(400));
        let next = waiting.iter_mut().position(|(_, reserved)| reserved.as_mut().poll(&mut task).is_ready());
        if let Some(next) = next {
            let (slot, _) = waiting.remove(next);
            slot.answering();
            busy.push_back(slot);
        }
    }
    assert_eq!((answers, waiting.len()), (404, 0), "all bodies are answered");
}

#[test]
fn body_of_known_address_and_of_address_with_few_bytes_goes_first() {
    let slots = Slots::new(limits());
    let known = enter(&slots, 200);
    known.answered(true);
    let busy: Vec<Slot> = (0..4).map(|number| enter(&slots, number / 2)).collect();
    for slot in &busy {
        assert!(reserve(slot, 10));
        slot.answering();
    }
    let (second, other) = (enter(&slots, 0), enter(&slots, 9));
    let mut waiting = [&second, &other, &known].map(|slot| Box::pin(slot.reserve(10)));
    let mut task = Context::from_waker(Waker::noop());
    assert!(waiting.iter_mut().all(|reserved| reserved.as_mut().poll(&mut task).is_pending()));
    busy[2].answered(false);
    let bytes = |slot: &Slot| slots.state.lock().connections[&slot.id].bytes;
    assert_eq!([&second, &other, &known].map(bytes), [0, 0, 10]);
    busy[3].answered(false);
    assert_eq!([&second, &other, &known].map(bytes), [0, 10, 10]);
    busy[0].answered(false);
    assert_eq!([&second, &other, &known].map(bytes), [10, 10, 10]);
}

#[test]
fn body_whose_time_ends_leaves_the_queue() {
    let slots = Slots::new(limits());
    let busy: Vec<Slot> = (0..4).map(|number| enter(&slots, number)).collect();
    for slot in &busy {
        assert!(reserve(slot, 10));
        slot.answering();
    }
    let (gone, next) = (enter(&slots, 8), enter(&slots, 9));
    let mut task = Context::from_waker(Waker::noop());
    let mut given_up = Box::pin(gone.reserve(10));
    let mut waiting = Box::pin(next.reserve(10));
    assert!(given_up.as_mut().poll(&mut task).is_pending() && waiting.as_mut().poll(&mut task).is_pending());
    drop(given_up);
    busy[0].answered(false);
    assert!(waiting.as_mut().poll(&mut task).is_ready());
}
