//! Tests of cores in parts: only the parts of one core are read, whatever lies beside them.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod sample;

use remora_snapshot::files::{self, CoreSet, MAX_CORE_BYTES, MAX_FILE_BYTES, PART_BYTES};
use remora_snapshot::model::Environment;
use remora_snapshot::{Pointer, ReadError, Role, Snapshot, core_length, pointer, write};
use siphasher::sip128::SipHasher13;

/// Writes a core of several parts. Its values consist of `fill`.
fn core(client_key: &str, fill: &str) -> Vec<u8> {
    let mut environment = Environment { client_key: client_key.to_owned(), ..sample::environment(0) };
    environment.features[0].default.value = format!("\"{}\"", fill.repeat(2 * PART_BYTES / 3));
    let core = write(&environment, MAX_FILE_BYTES).unwrap().files.swap_remove(0).bytes;
    assert!(files::part_lengths(core.len()).count() > 2, "{} bytes", core.len());
    core
}

fn read_pointer(file: &[u8]) -> Result<Pointer, ReadError> {
    Pointer::read(file).map(|pointer| pointer.expect("it is no pointer"))
}

/// Writes length and checksum of a file again.
fn sealed(mut file: Vec<u8>) -> Vec<u8> {
    let length = file.len() as u64;
    file[16..24].copy_from_slice(&length.to_le_bytes());
    let sum = SipHasher13::new().hash(&file[40..]).as_bytes();
    file[24..40].copy_from_slice(&sum);
    file
}

#[test]
fn pointer_names_set_length_and_revision_of_its_core() {
    let core = core("client", "a");
    for set in CoreSet::ALL {
        let file = pointer(&core, set).unwrap();
        assert_eq!(file.len(), 80);
        let pointer = read_pointer(&file).unwrap();
        assert_eq!((pointer.set(), pointer.length()), (set, core.len()));
        let parts: Vec<&[u8]> = files::parts(&core).collect();
        assert_eq!(core_length(parts[0]), Ok(core.len()));
        assert!(core_length(parts[1]).is_err());
        let snapshot = Snapshot::read_parts(parts.concat(), &pointer).unwrap();
        assert_eq!(snapshot.revision(), pointer.revision());
        assert_eq!(snapshot.flags(Role::Server), Snapshot::read(core.as_slice()).unwrap().flags(Role::Server));
    }
    assert_eq!(Pointer::read(&core), Ok(None), "a core is no pointer");
    assert!(Snapshot::read(pointer(&core, CoreSet::A).unwrap()).is_err(), "a pointer is no core");
}

#[test]
fn mixed_parts_are_never_read() {
    let cores = [core("client", "a"), core("client", "b"), core("client", "c")];
    let parts = cores.each_ref().map(|core| files::parts(core).collect::<Vec<_>>());
    for (number, core) in cores.iter().enumerate() {
        let pointer = read_pointer(&pointer(core, CoreSet::A).unwrap()).unwrap();
        let mut whole = 0;
        // Every choice of a revision for each of the parts.
        let places = parts[number].len();
        for choice in 0..cores.len().pow(places as u32) {
            let chosen: Vec<usize> = (0..places).map(|place| choice / cores.len().pow(place as u32) % 3).collect();
            let mixed: Vec<&[u8]> =
                chosen.iter().enumerate().filter_map(|(place, of)| parts[*of].get(place).copied()).collect();
            let read = Snapshot::read_parts(mixed.concat(), &pointer);
            // Equal bytes of two revisions are no mix.
            if mixed == parts[number] {
                whole += 1;
                assert_eq!(read.unwrap().revision(), pointer.revision());
            } else {
                let error = read.unwrap_err();
                let other = matches!(error, ReadError::MixedParts | ReadError::OtherRevision { .. });
                assert!(other, "parts of {chosen:?} are taken for {number}: {error}");
            }
        }
        assert!(whole > 0);
    }
}

#[test]
fn missing_repeated_and_truncated_parts_are_refused() {
    let core = core("client", "a");
    let pointer = read_pointer(&pointer(&core, CoreSet::B).unwrap()).unwrap();
    let parts: Vec<&[u8]> = files::parts(&core).collect();
    for place in 0..parts.len() {
        for changed in [&[][..], &parts[place][1..], &parts[place][..parts[place].len() - 1]] {
            let mut damaged = parts.clone();
            damaged[place] = changed;
            assert!(Snapshot::read_parts(damaged.concat(), &pointer).is_err(), "part {place}");
        }
        for other in (0..parts.len()).filter(|other| parts[*other] != parts[place]) {
            let mut damaged = parts.clone();
            damaged[place] = parts[other];
            assert!(Snapshot::read_parts(damaged.concat(), &pointer).is_err(), "part {other} for part {place}");
            damaged[other] = parts[place];
            assert!(Snapshot::read_parts(damaged.concat(), &pointer).is_err(), "part {other} and {place} exchanged");
        }
    }
}

#[test]
fn other_set_is_read_for_same_environment_only() {
    let (now, before, foreign) = (core("client", "a"), core("client", "b"), core("other", "b"));
    let pointer = read_pointer(&pointer(&now, CoreSet::A).unwrap()).unwrap();
    let found = Snapshot::read(before.as_slice()).unwrap().revision();
    let named = pointer.revision();
    assert_eq!(
        Snapshot::read_parts(before.as_slice(), &pointer).unwrap_err(),
        ReadError::OtherRevision { found, named }
    );
    assert_eq!(Snapshot::read_other_parts(before.as_slice(), &pointer).unwrap().revision(), found);
    assert_eq!(Snapshot::read_other_parts(foreign.as_slice(), &pointer).unwrap_err(), ReadError::OtherEnvironment);
}

#[test]
fn changed_pointer_is_refused() {
    let file = pointer(&core("client", "a"), CoreSet::A).unwrap();
    for length in 0..file.len() {
        let cut = Pointer::read(&file[..length]);
        assert!(matches!(cut, Ok(None) | Err(_)), "{length} bytes");
        assert!(length < 8 || cut.is_err(), "{length} bytes");
    }
    for place in 8..file.len() {
        let mut changed = file.clone();
        changed[place] ^= 0x55;
        // Nothing covers the minor version: a reader ignores it.
        assert!(Pointer::read(&changed).is_err() || (10..12).contains(&place), "byte {place}");
    }
    let with = |place: usize, field: &[u8]| {
        let mut changed = file.clone();
        changed[place..place + field.len()].copy_from_slice(field);
        Pointer::read(&sealed(changed))
    };
    assert!(with(64, &1_u32.to_le_bytes()).is_ok());
    for (place, field) in [
        (64, &2_u32.to_le_bytes()[..]),
        (68, &0_u32.to_le_bytes()),
        (68, &2_u32.to_le_bytes()),
        (72, &0_u64.to_le_bytes()),
        (72, &(MAX_CORE_BYTES as u64 + 1).to_le_bytes()),
        (72, &u64::MAX.to_le_bytes()),
    ] {
        assert!(matches!(with(place, field), Err(ReadError::Malformed { .. })), "field at {place}: {field:?}");
    }
    // Later minor versions may append fields.
    assert!(Pointer::read(&sealed([file.as_slice(), &[1; 8]].concat())).is_ok());
}
