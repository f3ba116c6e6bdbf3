//! Tests of the written files: the same bytes for the same environment, in the smallest number of files.

#![allow(clippy::unwrap_used, clippy::panic)]

mod sample;

use std::collections::BTreeMap;
use std::time::Duration;

use remora_snapshot::files::MAX_CORE_BYTES;
use remora_snapshot::model::{Compressed, Derivation, Environment, IdentityOverride, Property};
use remora_snapshot::{Document, FORMAT_MAJOR, RequestState, Role, Snapshot, TraitValue, WriteError, Written, write};

fn flags(snapshot: &Snapshot<&[u8]>, identifier: &str) -> String {
    let mut request = RequestState::default();
    snapshot.identify(&mut request, identifier);
    let mut out = Vec::new();
    snapshot.write_flags(&mut request, Role::Server, &mut out);
    String::from_utf8(out).unwrap()
}

#[test]
fn equal_environments_have_equal_bytes() {
    let written = write(&sample::environment(100), usize::MAX).unwrap();
    assert_eq!(written, write(&sample::environment(100), usize::MAX).unwrap());
    let mut reversed = sample::environment(100);
    reversed.identity_overrides.reverse();
    assert_eq!(written, write(&reversed, usize::MAX).unwrap(), "the order of identities means nothing");
    assert_ne!(written.revision, write(&sample::environment(99), usize::MAX).unwrap().revision);
}

/// Sidecars of earlier versions must be able to read current files.
#[test]
fn bytes_of_samples_change_only_with_format_major() {
    let revision = |environment| write(&environment, usize::MAX).unwrap().revision.to_string();
    assert_eq!(
        (FORMAT_MAJOR, &*revision(sample::environment(100)), &*revision(sample::complete(100))),
        (3, "42f8fba7a024", "749dbdd879d1"),
        "the bytes of a sample are others: if an earlier reader cannot read them, increase FORMAT_MAJOR. Then write the \
         new revisions here"
    );
}

#[test]
fn overrides_in_one_or_many_files_are_found() {
    let environment = sample::environment(400);
    let whole = write(&environment, usize::MAX).unwrap();
    assert_eq!(whole.files.len(), 1);
    let limit = write(&sample::environment(0), usize::MAX).unwrap().files[0].bytes.len() + 64;
    let sharded = write(&environment, limit).unwrap();
    assert!(sharded.files.len() > 2 && sharded.files.iter().all(|file| file.bytes.len() <= limit));
    assert_ne!(whole.revision, sharded.revision);

    let one = Snapshot::read(whole.files[0].bytes.as_slice()).unwrap();
    let mut many = Snapshot::read(sharded.files[0].bytes.as_slice()).unwrap();
    assert!(!flags(&many, "user_7").contains("for"), "no overrides are attached yet");
    for file in &sharded.files[1..] {
        many.attach(&file.bytes).unwrap();
    }
    assert_eq!(many.identity_overrides(), 400);
    for number in 0..400 {
        let identifier = format!("user_{number}");
        let answer = flags(&one, &identifier);
        assert_eq!(answer, flags(&many, &identifier));
        assert!(answer.contains(&format!("\"for {}\"", number % 7)), "{answer}");
    }
    assert!(!flags(&one, "user_400").contains("for"));
}

#[test]
fn changed_identity_changes_one_overrides_file() {
    let environment = sample::environment(400);
    let limit = write(&sample::environment(0), usize::MAX).unwrap().files[0].bytes.len() + 64;
    let before = write(&environment, limit).unwrap();
    let mut changed = environment;
    changed.identity_overrides[17].flags[0].value = "\"changed\"".to_owned();
    let after = write(&changed, limit).unwrap();
    let differing: Vec<&str> =
        before.files[1..].iter().zip(&after.files[1..]).filter(|(a, b)| a != b).map(|(a, _)| a.name.as_str()).collect();
    assert_eq!(differing.len(), 1, "{differing:?}");
    assert_ne!(before.revision, after.revision, "the revision is that of all files");

    let mut added = changed.clone();
    added
        .identity_overrides
        .push(IdentityOverride { identifier: "new".to_owned(), ..changed.identity_overrides[0].clone() });
    let more = write(&added, limit).unwrap();
    assert_eq!(after.files[1..].iter().zip(&more.files[1..]).filter(|(a, b)| a != b).count(), 1);
}

#[test]
fn environment_beyond_limit_is_refused_with_advice() {
    let mut large = sample::environment(0);
    large.features[0].default.value = format!("\"{}\"", "x".repeat(MAX_CORE_BYTES));
    let error = write(&large, 1_000_000).unwrap_err();
    assert!(
        matches!(error, WriteError::CoreTooLarge { limit: MAX_CORE_BYTES, .. })
            && error.to_string().contains("spec.prune.features"),
        "{error}"
    );
    let limit = write(&sample::environment(0), usize::MAX).unwrap().files[0].bytes.len() + 64;
    let error = write(&sample::environment(50_000), limit).map(|written| written.files.len()).unwrap_err();
    assert!(
        matches!(error, WriteError::OverridesTooLarge { count: 50_000, .. })
            && error.to_string().contains("identityOverrides"),
        "{error}"
    );
}

#[test]
fn written_bytes_contain_no_key_and_no_identifier() {
    let written = write(&sample::environment(10), usize::MAX).unwrap();
    let text = String::from_utf8_lossy(&written.files[0].bytes).into_owned();
    assert!(!text.contains("ser.key") && !text.contains("user_"));
    let snapshot = Snapshot::read(written.files[0].bytes.as_slice()).unwrap();
    assert_eq!(snapshot.role_of("ser.key"), Some(Role::Server));
    assert_eq!(snapshot.role_of("client"), Some(Role::Client));
    assert_eq!(snapshot.role_of("ser.other"), None);
}

#[test]
fn feature_read_only_by_conditions_is_in_no_answer() {
    let mut environment = sample::environment(0);
    environment.features[0].served = false;
    let name = format!("\"{}\"", environment.features[0].name);
    let written = write(&environment, usize::MAX).unwrap();
    let snapshot = Snapshot::read(written.files[0].bytes.as_slice()).unwrap();
    for role in [Role::Client, Role::Server] {
        let mut request = RequestState::default();
        snapshot.identify(&mut request, "somebody");
        let mut ofrep = Vec::new();
        snapshot.write_ofrep_flags(&mut request, role, &mut ofrep);
        for answer in [snapshot.flags(role), flags(&snapshot, "somebody").as_bytes(), &ofrep] {
            let answer = std::str::from_utf8(answer).unwrap();
            assert!(answer.contains("feature") && !answer.contains(&name), "{answer}");
        }
    }
}

/// Equal flags have equal digests for every identity, and different flags have different digests.
#[test]
fn digests_are_equal_for_equal_flags_only() {
    let mut environment = sample::environment(100);
    // An identity override that equals the default.
    environment.identity_overrides[0].flags[0].feature = environment.features[2].id;
    environment.identity_overrides[0].flags[0].enabled = environment.features[2].default.enabled;
    environment.identity_overrides[0].flags[0].value = environment.features[2].default.value.clone();
    for hide_disabled in [false, true] {
        environment.hide_disabled = hide_disabled;
        let written = write(&environment, usize::MAX).unwrap();
        let snapshot = Snapshot::read(written.files[0].bytes.as_slice()).unwrap();
        let (mut digests, mut answers) = (BTreeMap::new(), BTreeMap::new());
        for number in 0..300 {
            for role in [Role::Client, Role::Server] {
                let mut request = RequestState::default();
                snapshot.identify(&mut request, &format!("user_{number}"));
                let plan = if number % 2 == 0 { "pro" } else { "other" };
                snapshot.set_trait(&mut request, "plan", TraitValue::String(plan));
                let (mut answer, mut ofrep) = (Vec::new(), Vec::new());
                let digest = snapshot.write_flags(&mut request, role, &mut answer);
                assert_eq!(digest, snapshot.write_ofrep_flags(&mut request, role, &mut ofrep), "in either dialect");
                let answer = String::from_utf8(answer).unwrap();
                assert_eq!(digests.entry(digest).or_insert_with(|| answer.clone()), &answer);
                assert_eq!(*answers.entry(answer).or_insert(digest), digest);
            }
        }
        assert!(digests.len() > 10, "{}", digests.len());
    }
}

/// Creates a stream that no test decompresses: the gzip frame around bytes that do not compress.
fn compressed(bytes: usize) -> Compressed {
    let mut gzip = vec![0x1f, 0x8b, 8, 0, 0x18, 0xdb, 0x00, 0x6b, 2, 255];
    gzip.extend((0..bytes).map(|byte| (byte * 7) as u8));
    gzip.extend([0; 4]);
    gzip.extend(1_000_u32.to_le_bytes());
    Compressed { gzip, length: 1_000 }
}

#[test]
fn document_in_parts_is_read_whole() {
    let core = write(&sample::environment(0), usize::MAX).unwrap().files[0].bytes.len() + 64;
    // The last size leaves three bytes of the gzip trailer to the last part.
    for (size, parts) in [(0, 1), (100, 1), (core * 2, 3), (2 * (core - 104) - 15, 3)] {
        let document = compressed(size);
        let environment = Environment { document: Some(document.clone()), ..sample::environment(0) };
        let written = write(&environment, core).unwrap();
        let names: Vec<&str> = written.files[1..].iter().map(|file| file.name.as_str()).collect();
        assert_eq!(names, ["document-00", "document-01", "document-02"][..parts], "{size}");
        assert_ne!(written.revision, write(&sample::environment(0), core).unwrap().revision);

        let snapshot = Snapshot::read(written.files[0].bytes.clone()).unwrap();
        assert!(snapshot.serves_document());
        let files: Vec<Vec<u8>> = written.files[1..].iter().map(|file| file.bytes.clone()).collect();
        assert_eq!(Document::<Vec<u8>>::count(&files[0]), Ok(parts));
        let read = snapshot.document(files.clone()).unwrap();
        assert_eq!((read.length(), read.stored()), (1_000, document.gzip.len() as u64));
        assert_eq!(read.updated_at(), Some(Duration::from_secs(0x6b00_db18)));
        let (mut whole, mut deflated) = (Vec::new(), Vec::new());
        for (index, file) in read.files().iter().enumerate() {
            whole.extend_from_slice(&file[read.range(index).unwrap()]);
            deflated.extend_from_slice(read.deflated(index).unwrap());
        }
        assert_eq!(whole, document.gzip);
        assert_eq!(deflated, document.gzip[10..document.gzip.len() - 8]);
        if parts > 1 {
            assert!(snapshot.document(files[1..].to_vec()).is_err() && Document::<Vec<u8>>::count(&files[1]).is_err());
            let other = Environment { document: Some(compressed(size + 1)), ..sample::environment(0) };
            let other = write(&other, core).unwrap();
            let mixed = vec![files[0].clone(), other.files[2].bytes.clone(), files[2].clone()];
            assert!(snapshot.document(mixed).is_err(), "parts of two documents");
        }
    }
    assert!(
        !Snapshot::read(write(&sample::environment(0), core).unwrap().files[0].bytes.clone())
            .unwrap()
            .serves_document()
    );
}

#[test]
fn document_beyond_limit_is_refused_with_advice() {
    let limit = write(&sample::environment(0), usize::MAX).unwrap().files[0].bytes.len() + 64;
    let environment = Environment { document: Some(compressed(limit * 3)), ..sample::environment(0) };
    let error = write(&environment, limit).unwrap_err();
    assert!(
        matches!(error, WriteError::DocumentTooLarge { .. }) && error.to_string().contains("environmentDocument"),
        "{error}"
    );
}

/// Files stay mounted for a while after the overrides have become so few that the core has them, or none.
#[test]
fn leftover_overrides_files_do_not_count() {
    let limit = write(&sample::environment(0), usize::MAX).unwrap().files[0].bytes.len() + 64;
    let before = write(&sample::environment(400), limit).unwrap();
    for left in [0, 1] {
        let mut environment = sample::environment(left);
        environment.identity_overrides.truncate(left);
        let now = write(&environment, usize::MAX).unwrap();
        let mut snapshot = Snapshot::read(now.files[0].bytes.as_slice()).unwrap();
        for file in &before.files[1..] {
            snapshot.attach(&file.bytes).unwrap();
        }
        assert_eq!(snapshot.identity_overrides(), left);
        assert_eq!(flags(&snapshot, "user_0").contains("for"), left == 1);
        assert!(!flags(&snapshot, "user_7").contains("for"));
    }
}

/// Writes the environment with its overrides in this number of files.
fn divided(environment: &Environment, files: usize) -> Written {
    let core = write(&sample::environment(0), usize::MAX).unwrap().files[0].bytes.len() + 64;
    let mut limits = (core..core * 64).step_by(core / 8).map(|limit| write(environment, limit));
    limits.find_map(|written| written.ok().filter(|written| written.files.len() == files + 1)).unwrap()
}

fn without_first(count: usize) -> Environment {
    let mut environment = sample::environment(count);
    environment.identity_overrides.remove(0);
    environment
}

/// Leftover files of a finer division do not count while overrides are still in separate files.
#[test]
fn leftover_files_of_finer_division_do_not_count() {
    let before = divided(&sample::environment(1_600), 8);
    let now = divided(&without_first(1_600), 2);
    let mut snapshot = Snapshot::read(now.files[0].bytes.as_slice()).unwrap();
    assert_eq!(snapshot.overrides_files(), Some(2));
    for file in now.files[1..].iter().chain(&before.files[3..]) {
        snapshot.attach(&file.bytes).unwrap();
    }
    assert!(snapshot.is_whole());
    assert_eq!(snapshot.identity_overrides(), 1_599);
    assert!(!flags(&snapshot, "user_0").contains("for"), "it was removed");
    for number in 1..1_600 {
        assert!(flags(&snapshot, &format!("user_{number}")).contains(&format!("\"for {}\"", number % 7)), "{number}");
    }
}

/// Files are written one after another, the core last. Between two divisions no overrides are missing, as long as all
/// files of one division exist.
#[test]
fn overrides_between_two_divisions_are_found() {
    let (coarse, fine) = (divided(&sample::environment(1_600), 2), divided(&sample::environment(1_600), 8));
    for (core, written, others) in [(&coarse, &fine, &coarse), (&fine, &coarse, &fine)] {
        for count in 1..written.files.len() {
            let mut snapshot = Snapshot::read(core.files[0].bytes.as_slice()).unwrap();
            for file in others.files[1..].iter().chain(&written.files[1..=count]) {
                snapshot.attach(&file.bytes).unwrap();
            }
            let missing = (0..1_600).filter(|user| !flags(&snapshot, &format!("user_{user}")).contains("for")).count();
            assert_eq!(snapshot.is_whole(), missing == 0, "{count} files of {}", written.files.len() - 1);
            let all_there = count + 1 == written.files.len() || written.files.len() < others.files.len();
            assert_eq!(snapshot.is_whole(), all_there, "{count} files of {}", written.files.len() - 1);
        }
    }
}

#[test]
fn missing_overrides_files_are_known() {
    let written = divided(&sample::environment(1_600), 8);
    for absent in 1..written.files.len() {
        let mut snapshot = Snapshot::read(written.files[0].bytes.as_slice()).unwrap();
        assert!(!snapshot.is_whole());
        for (number, file) in written.files.iter().enumerate().skip(1) {
            if number != absent {
                snapshot.attach(&file.bytes).unwrap();
            }
        }
        assert!(!snapshot.is_whole(), "without {}", written.files[absent].name);
        snapshot.attach(&written.files[absent].bytes).unwrap();
        assert!(snapshot.is_whole());
    }
    let whole = write(&sample::environment(1_600), usize::MAX).unwrap();
    let snapshot = Snapshot::read(whole.files[0].bytes.as_slice()).unwrap();
    assert!(snapshot.is_whole() && snapshot.overrides_files().is_none());
}

#[test]
fn environment_beyond_the_numbers_of_the_format_is_refused() {
    let beyond = |what, count| Some(WriteError::TooMany { what, count, limit: 65_535 });
    let property = Property { name: None, derivation: Derivation::Plain };
    let mut environment = Environment { properties: vec![property; 65_536], ..sample::environment(0) };
    assert_eq!(write(&environment, usize::MAX).err(), beyond("properties", 65_536));
    environment.properties.pop();
    assert!(write(&environment, usize::MAX).is_ok());

    let mut environment = sample::environment(0);
    let segment = environment.segments.iter_mut().find(|segment| !segment.overrides.is_empty()).unwrap();
    segment.overrides = vec![segment.overrides[0].clone(); 65_536];
    let refused = write(&environment, usize::MAX).unwrap_err();
    assert!(
        refused.to_string().contains("segment overrides of one feature; a snapshot holds at most 65534"),
        "{refused}"
    );
}
