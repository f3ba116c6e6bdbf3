use super::*;
use crate::publish::File;

/// Returns a snapshot whose core needs this number of parts.
fn snapshot(revision: &str, parts: usize) -> Snapshot {
    let bytes = if parts == 0 { 1 } else { files::PART_BYTES * parts };
    let snapshot = Snapshot::new(Revision::new(revision), vec![File::new("core".to_owned(), vec![0; bytes])]);
    assert_eq!(snapshot.core_parts(), parts);
    snapshot
}

/// Decides about a core of three parts. `pods` has the number of parts that each running pod has room for: `None` if the
/// pods cannot be listed.
fn decide(room: Room, published: Option<&str>, new_pods: usize, pods: Option<&[usize]>, now: Instant) -> Room {
    let (chosen, published) = (snapshot("b", 3), published.map(Revision::new));
    let fit = Fit { chosen: &chosen, published: published.as_ref(), parts_of_new_pods: new_pods };
    let not_listed = || Failure { reason: Reason::ListPods, message: "cannot list".to_owned() };
    let looked = pods.map(|parts| Seen { at: now, volumes: Volumes::with_parts(parts) }).ok_or_else(not_listed);
    room.decide(&fit, Some(looked), now)
}

fn reason(room: &Room) -> Option<Reason> {
    room.failure().map(|failure| failure.reason)
}

#[test]
fn core_is_withheld_unless_all_pods_have_room() {
    let now = Instant::now();
    let (without_room, not_listed) = (Some(Reason::PodsWithoutRoom), Some(Reason::ListPods));
    for (published, new_pods, pods, expected) in [
        (Some("a"), 3, Some(&[3, 4][..]), None),
        (Some("a"), 3, Some(&[]), None),
        (Some("a"), 3, Some(&[3, 2]), without_room),
        (Some("a"), 3, None, not_listed),
        // Pods in admission are in no list.
        (Some("a"), 2, Some(&[3]), without_room),
        // Pods serve the core already, or have no flags.
        (Some("b"), 2, Some(&[2]), None),
        (None, 2, Some(&[2]), None),
        (None, 2, None, None),
    ] {
        let room = decide(Room::default(), published, new_pods, pods, now);
        assert_eq!(reason(&room), expected, "{published:?} {new_pods} {pods:?}");
        assert_eq!(room.withheld_bytes().is_some(), expected.is_some());
    }
}

#[test]
fn core_is_published_after_admission_of_pods_without_room() {
    let began = Instant::now();
    let mut room = decide(Room::default(), Some("a"), 2, Some(&[3]), began);
    assert_eq!(room.next_look(), Some(began + ADMISSION));
    // The status reports the core from now on.
    room = decide(room, Some("a"), 3, Some(&[3]), began + ADMISSION / 2);
    assert_eq!(reason(&room), Some(Reason::PodsWithoutRoom));
    room.start_generation();
    room = decide(room, Some("a"), 3, Some(&[3]), began + ADMISSION / 2);
    assert_eq!(reason(&room), Some(Reason::PodsWithoutRoom), "an edit admits no pod");
    room = decide(room, Some("a"), 3, Some(&[3]), began + ADMISSION);
    assert_eq!(reason(&room), None);
    assert_eq!(room.next_look(), None);
}

#[test]
fn pods_are_listed_before_each_new_core_and_at_intervals() {
    let now = Instant::now();
    let (chosen, [published, other]) = (snapshot("b", 3), ["b", "a"].map(Revision::new));
    let needs_look = |room: &Room, published: &Revision, after: Duration| {
        let fit = Fit { chosen: &chosen, published: Some(published), parts_of_new_pods: 3 };
        room.needs_look(&fit, now + after)
    };
    assert!(needs_look(&Room::default(), &published, Duration::ZERO));
    let fitting = decide(Room::default(), Some("a"), 3, Some(&[3]), now);
    assert!(needs_look(&fitting, &other, Duration::ZERO), "a pod may have been admitted since");
    assert!(!needs_look(&fitting, &published, LOOK_WHEN_PUBLISHED - Duration::from_secs(1)));
    assert!(needs_look(&fitting, &published, LOOK_WHEN_PUBLISHED));
    let withheld = decide(Room::default(), Some("a"), 3, Some(&[2]), now);
    assert!(!needs_look(&withheld, &other, LOOK - Duration::from_secs(1)));
    assert!(needs_look(&withheld, &other, LOOK));
    let not_listed = decide(Room::default(), Some("a"), 3, None, now);
    assert!(needs_look(&not_listed, &other, Duration::ZERO));
}

#[test]
fn decision_without_look_uses_volumes_of_last_one() {
    let now = Instant::now();
    let withheld = decide(Room::default(), Some("a"), 3, Some(&[2]), now);
    let (chosen, published) = (snapshot("b", 3), Revision::new("a"));
    let fit = Fit { chosen: &chosen, published: Some(&published), parts_of_new_pods: 3 };
    let room = withheld.decide(&fit, None, now + LOOK / 2);
    assert_eq!(reason(&room), Some(Reason::PodsWithoutRoom));
    assert_eq!(room.next_look(), Some(now + LOOK));
}

#[test]
fn small_core_needs_no_room() {
    let (small, large) = (snapshot("a", 0), snapshot("b", 3));
    let is_small = |chosen: &Snapshot| Fit { chosen, published: None, parts_of_new_pods: 0 }.is_small();
    assert!(is_small(&small) && !is_small(&large));
}
