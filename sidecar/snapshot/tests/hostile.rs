//! Bytes of a file are hostile: reading and evaluating any bytes ends, and nothing panics.

#![allow(clippy::unwrap_used, clippy::panic)]

mod sample;

use remora_snapshot::{FORMAT_MAJOR, ReadError, RequestState, Role, Snapshot, TraitValue, model, write};

/// Makes every kind of request.
fn exercise(core: &[u8], overrides: &[&[u8]]) -> Result<usize, ReadError> {
    let mut snapshot = Snapshot::read(core)?;
    for file in overrides {
        snapshot.attach(file)?;
    }
    let mut request = RequestState::default();
    let mut out = Vec::new();
    for role in [Role::Client, Role::Server] {
        out.extend_from_slice(snapshot.flags(role));
        for name in sample::FEATURES {
            out.extend_from_slice(snapshot.flag(role, name).unwrap_or_default());
            snapshot.write_ofrep_flag(&mut request, role, name, &mut out);
        }
        for (identifier, plan) in [("user_1", "pro"), ("anybody", "aab aa"), ("", "")] {
            request.clear();
            snapshot.identify(&mut request, identifier);
            snapshot.set_trait(&mut request, "plan", TraitValue::String(plan));
            snapshot.set_trait(&mut request, "age", TraitValue::Integer("31"));
            snapshot.set_trait(&mut request, "version", TraitValue::String("1.2.10"));
            snapshot.set_trait(&mut request, "score", TraitValue::Float(2.75));
            snapshot.write_flags(&mut request, role, &mut out);
            snapshot.write_ofrep_flags(&mut request, role, &mut out);
            snapshot.explain(&mut request);
        }
    }
    snapshot.describe();
    snapshot.role_of("client");
    Ok(out.len())
}

/// Recomputes the checksum, so that the content after it is reached.
fn sealed(mut file: Vec<u8>) -> Vec<u8> {
    if file.len() > 40 {
        let sum = siphasher::sip128::SipHasher13::new().hash(&file[40..]).as_bytes();
        file[24..40].copy_from_slice(&sum);
    }
    file
}

#[test]
fn file_cut_off_or_damaged_is_refused() {
    let written = write(&sample::complete(3), usize::MAX).unwrap();
    let core = &written.files[0].bytes;
    for length in 0..core.len() {
        assert!(Snapshot::read(&core[..length]).is_err(), "{length} bytes");
    }
    for place in 0..core.len() {
        let mut damaged = core.clone();
        damaged[place] ^= 0x10;
        // The checksum does not cover the minor version, and a reader ignores it.
        let is_free = (10..12).contains(&place);
        assert!(is_free || Snapshot::read(damaged.as_slice()).is_err(), "byte {place}");
    }
}

#[test]
fn file_of_other_format_is_refused_with_advice() {
    let written = write(&sample::complete(3), usize::MAX).unwrap();
    let with = |place: usize, byte: u8| {
        let mut core = written.files[0].bytes.clone();
        core[place] = byte;
        Snapshot::read(sealed(core)).unwrap_err().to_string()
    };
    let next = u8::try_from(FORMAT_MAJOR + 1).unwrap();
    assert!(with(8, next).contains(&format!("format {next},")) && with(8, next).contains("upgrade the sidecar"));
    assert!(with(12, 1).contains("upgrade the sidecar"));
    assert!(with(0, b'X').contains("not what its name says"));
}

/// Number of threads that share the changed words.
const THREADS: usize = 4;

#[test]
fn file_with_any_changed_word_never_panics() {
    let written = write(&sample::complete(3), usize::MAX).unwrap();
    let core = &written.files[0].bytes;
    let outcomes = |start: usize| {
        let (mut refused, mut read) = (0, 0);
        for place in (start..core.len() - 4).step_by(4 * THREADS) {
            let word = u32::from_le_bytes(core[place..place + 4].try_into().unwrap());
            for changed in [
                0,
                1,
                word.wrapping_add(1),
                word.wrapping_sub(1),
                word ^ 0x8000_0000,
                0x7fff_ffff,
                u32::MAX,
                u32::MAX - 1,
                core.len() as u32,
            ] {
                let mut hostile = core.clone();
                hostile[place..place + 4].copy_from_slice(&changed.to_le_bytes());
                match exercise(&sealed(hostile), &[]) {
                    Ok(_) => read += 1,
                    Err(_) => refused += 1,
                }
            }
        }
        (refused, read)
    };
    let (refused, read) = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|number| scope.spawn(move || outcomes(40 + 4 * number))).collect();
        let outcomes = threads.into_iter().map(|thread| thread.join().unwrap());
        outcomes.fold((0, 0), |(refused, read), more| (refused + more.0, read + more.1))
    });
    assert!(refused > 1_000 && read > 1_000, "{refused} were refused, {read} were read: the changes do not reach both");
}

#[test]
fn hostile_overrides_file_leaves_core_served() {
    let environment = sample::environment(400);
    let limit = write(&sample::environment(0), usize::MAX).unwrap().files[0].bytes.len() + 64;
    let written = write(&environment, limit).unwrap();
    let [core, shards @ ..] = written.files.as_slice() else { panic!() };
    assert!(shards.len() > 1, "{} shards", shards.len());
    let whole: Vec<&[u8]> = shards.iter().map(|shard| shard.bytes.as_slice()).collect();
    exercise(&core.bytes, &whole).unwrap();
    for place in (40..shards[0].bytes.len() - 4).step_by(4) {
        for changed in [0, 1, 7, 0x7fff_ffff, u32::MAX] {
            let mut hostile = shards[0].bytes.clone();
            hostile[place..place + 4].copy_from_slice(&u32::to_le_bytes(changed));
            let _ = exercise(&core.bytes, &[&sealed(hostile)]); // an error or an answer, no panic
        }
    }
    let other = remora_snapshot::model::Environment { client_key: "other".to_owned(), ..sample::environment(0) };
    let other = write(&other, usize::MAX).unwrap();
    assert_eq!(exercise(&other.files[0].bytes, &whole), Err(ReadError::OtherEnvironment));
}

#[test]
fn changed_document_part_is_refused_or_read() {
    let core = write(&sample::environment(0), usize::MAX).unwrap().files[0].bytes.len() + 64;
    let mut gzip = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 2, 255];
    gzip.extend(std::iter::repeat_n(0x5a, core + 500));
    gzip.extend(7_u32.to_le_bytes());
    let document = Some(model::Compressed { gzip, length: 7 });
    let written = write(&model::Environment { document, ..sample::environment(0) }, core).unwrap();
    let snapshot = Snapshot::read(written.files[0].bytes.clone()).unwrap();
    let parts: Vec<Vec<u8>> = written.files[1..].iter().map(|file| file.bytes.clone()).collect();
    assert_eq!(parts.len(), 2);
    assert_eq!(snapshot.document(parts.clone()).unwrap().length(), 7);
    for (index, part) in parts.iter().enumerate() {
        let read = |changed: Vec<u8>| {
            let mut parts = parts.clone();
            parts[index] = changed;
            snapshot.document(parts).map(|document| document.deflated(1).map(<[u8]>::len))
        };
        for length in 0..part.len() {
            assert!(read(part[..length].to_vec()).is_err(), "{length} bytes");
            assert!(read(sealed(part[..length].to_vec())).is_err(), "{length} bytes");
        }
        for place in (0..part.len()).step_by(4) {
            for changed in [0, 1, 2, 7, 0x7fff_ffff, u32::MAX] {
                let mut hostile = part.clone();
                hostile[place..(place + 4).min(part.len())]
                    .copy_from_slice(&u32::to_le_bytes(changed)[..4.min(part.len() - place)]);
                let same = hostile == *part;
                assert!(same || read(hostile.clone()).is_err() || (8..12).contains(&place), "word at {place}");
                let _ = read(sealed(hostile)); // an error or a document, no panic
            }
        }
    }
    assert!(snapshot.document(Vec::new()).is_err());
    let other = model::Environment { client_key: "other".to_owned(), ..sample::environment(0) };
    let other = Snapshot::read(write(&other, usize::MAX).unwrap().files[0].bytes.clone()).unwrap();
    assert_eq!(other.document(parts).unwrap_err(), ReadError::OtherEnvironment);
}

/// Offset of the entry of a section, by its number in the specification.
fn entry(section: usize) -> usize {
    64 + section * 8
}

fn put(file: &mut [u8], place: usize, words: &[u32]) {
    for (number, word) in words.iter().enumerate() {
        file[place + number * 4..place + number * 4 + 4].copy_from_slice(&word.to_le_bytes());
    }
}

fn refusal(file: Vec<u8>) -> Option<String> {
    Snapshot::read(sealed(file)).err().map(|error| error.to_string())
}

#[test]
fn file_with_more_slots_than_instructions_can_name_is_refused() {
    const SLOTS: usize = 27;
    // Slots of zeros have no name and no value.
    let value = "\0".repeat(65_537 * 16);
    let mut environment = sample::environment(0);
    environment.segments.clear();
    environment.properties.clear();
    environment.features[0].default.value = value.clone();
    let core = write(&environment, usize::MAX).unwrap().files.swap_remove(0).bytes;
    let zeros = core.windows(value.len()).position(|window| window.iter().all(|byte| *byte == 0)).unwrap();
    let with = |slots: u32| {
        let mut file = core.clone();
        put(&mut file, entry(SLOTS), &[zeros as u32, slots * 16]);
        // The table of their names has one free row.
        put(&mut file, entry(SLOTS + 1), &[zeros as u32, 24]);
        refusal(file)
    };
    assert_eq!(with(65_535), None);
    for slots in [65_536, 65_537] {
        let refused = with(slots).unwrap_or_default();
        assert!(refused.contains("slot 65535 is malformed: there are more than 65535"), "{refused}");
    }
}

#[test]
fn file_with_more_overrides_of_a_feature_than_ranks_is_refused() {
    const FEATURES: usize = 1;
    let mut environment = sample::environment(0);
    let segment = environment.segments.iter().position(|segment| !segment.overrides.is_empty()).unwrap();
    let own = environment.segments[segment].overrides[0].clone();
    environment.segments.iter_mut().for_each(|segment| segment.overrides.clear());
    let of = |feature: usize| vec![model::Override { feature, ..own.clone() }; 40_000];
    environment.segments[segment].overrides = [of(0), of(1)].concat();
    let core = write(&environment, usize::MAX).unwrap().files.swap_remove(0).bytes;
    let features = u32::from_le_bytes(core[entry(FEATURES)..entry(FEATURES) + 4].try_into().unwrap()) as usize;
    let word = |place: usize| u32::from_le_bytes(core[place..place + 4].try_into().unwrap());
    // The fields of a feature: its first override, and their number.
    let [first, second] = [features + 44, features + 56 + 44];
    assert_eq!([word(first), word(first + 4), word(second), word(second + 4)], [0, 40_000, 40_000, 40_000]);
    let with = |overrides: u32| {
        let mut file = core.clone();
        put(&mut file, first, &[0, overrides]);
        put(&mut file, second, &[overrides, 80_000 - overrides]);
        refusal(file)
    };
    assert_eq!(with(65_534), None);
    let refused = with(65_535).unwrap_or_default();
    assert!(refused.contains("feature 0 is malformed: it has more than 65534 overrides"), "{refused}");
}
