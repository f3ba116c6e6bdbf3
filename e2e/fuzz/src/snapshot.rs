//! Snapshot files: reading and evaluating any bytes ends without a panic.
//!
//! The input is a list of edits of a valid file. The first byte chooses the environment, the file, the role of the
//! caller, and if the checksum is recomputed. Each edit has eight bytes: operation (one), place (three) and operand
//! (four). So an input still attacks the reader after a change of the format.

use std::sync::OnceLock;

use remora_snapshot::files::{self, CORE, CoreSet};
use remora_snapshot::{File, Pointer, RequestState, Role, Snapshot, TraitValue, core_length, pointer};
use siphasher::sip128::SipHasher13;

use crate::environment;

/// Position of the checksum. It covers all bytes after it.
const CHECKSUM: std::ops::Range<usize> = 24..40;
/// Length in bytes of headers and section tables, in which edits reach the most code.
const TABLES: usize = 512;
/// Largest number of bytes that an edit adds to a file.
const MOST_ADDED: usize = 4096;
/// Limit of a file in bytes. It is small, so that overrides and the document get separate files.
const SMALL_FILES: usize = 19_500;
/// Names of features of `environment.json`, and one unknown name.
const FEATURES: [&str; 5] = ["plain", "split", "dependent", "secret", "none"];

/// Asserts that an edited snapshot is read and evaluated without a panic.
pub fn run(data: &[u8]) {
    let Some((&choice, edits)) = data.split_first() else { return };
    let role = if choice & 0x80 == 0 { Role::Client } else { Role::Server };
    let number = usize::from(choice >> 2 & 0xf);
    let (files, edited) = environments().choose(choice, number);
    // Only the edited file is copied.
    let mut own = files[edited].bytes.clone();
    edit(&mut own, edits);
    if choice & 2 == 0 {
        seal(&mut own);
    }
    let bytes = |at: usize| if at == edited { own.as_slice() } else { files[at].bytes.as_slice() };
    let files: Vec<(&str, &[u8])> =
        files.iter().enumerate().map(|(at, file)| (file.name.as_str(), bytes(at))).collect();
    exercise(&files, role);
}

/// Files to edit.
struct Environments {
    /// The environment in one core and its document.
    whole: Vec<File>,
    /// The same environment in many small files.
    parts: Vec<File>,
    /// A pointer, and the core that it names.
    pointed: Vec<File>,
    /// One small environment for each segment. Most inputs edit one of these, because they take a tenth of the time.
    small: Vec<Vec<File>>,
}

impl Environments {
    /// Returns the files, and the index of the file to edit.
    fn choose(&self, choice: u8, number: usize) -> (&[File], usize) {
        if choice & 0x40 != 0 {
            return (&self.small[number % self.small.len()], 0);
        }
        let files = match (choice & 1, number) {
            (0, 8..) => &self.pointed,
            (0, _) => &self.whole,
            _ => &self.parts,
        };
        (files, number % files.len())
    }
}

fn environments() -> &'static Environments {
    static ENVIRONMENTS: OnceLock<Environments> = OnceLock::new();
    ENVIRONMENTS.get_or_init(|| Environments {
        whole: environment::compiled(usize::MAX).files,
        parts: environment::compiled(SMALL_FILES).files,
        pointed: pointed(&environment::compiled(usize::MAX).files[0].bytes),
        small: environment::small().into_iter().map(|small| small.files).collect(),
    })
}

fn pointed(core: &[u8]) -> Vec<File> {
    let set = CoreSet::A;
    let pointer = File { name: CORE.to_owned(), bytes: pointer(core, set).unwrap() };
    let part = |(part, bytes): (usize, &[u8])| File { name: files::core_part(set, part), bytes: bytes.to_vec() };
    [pointer].into_iter().chain(files::parts(core).enumerate().map(part)).collect()
}

fn edit(file: &mut Vec<u8>, edits: &[u8]) {
    for edit in edits.as_chunks::<8>().0 {
        let &[operation, a, b, c, ref value @ ..] = edit;
        let place = u32::from_le_bytes([a, b, c, 0]) as usize;
        let value = u32::from_le_bytes(*value);
        // The highest bit chooses the range of the operation: the whole file, or the tables.
        let reach = if operation & 0x80 == 0 { file.len() } else { file.len().min(TABLES) };
        let Some(place) = place.checked_rem(reach) else { continue };
        let word = place & !3;
        let read =
            |file: &[u8], at: usize| file.get(at..at + 4).map(|four| u32::from_le_bytes(four.try_into().unwrap()));
        match operation % 8 {
            0 => file[place] = value as u8,
            1 => put(file, word, value),
            2 => {
                if let Some(old) = read(file, word) {
                    put(file, word, old.wrapping_add(value));
                }
            }
            // A word from elsewhere in the file is the most likely to pass validation.
            3 => {
                if let Some(other) = read(file, (value as usize % file.len()) & !3) {
                    put(file, word, other);
                }
            }
            4 => {
                let from = value as usize % file.len();
                let to = (from + 64).min(file.len());
                let copied = file[from..to].to_vec();
                let end = (place + copied.len()).min(file.len());
                file[place..end].copy_from_slice(&copied[..end - place]);
            }
            5 => file.truncate(place),
            6 => file.extend(std::iter::repeat_n(place as u8, value as usize % MOST_ADDED)),
            _ => {
                let near_the_end = (file.len() as u32).saturating_sub(value & 0xff);
                put(file, word, near_the_end);
            }
        }
    }
}

fn put(file: &mut [u8], at: usize, word: u32) {
    if let Some(four) = file.get_mut(at..at + 4) {
        four.copy_from_slice(&word.to_le_bytes());
    }
}

/// Corrects length and checksum, so that the reader gets past them.
fn seal(file: &mut [u8]) {
    let length = file.len() as u64;
    if let Some(own) = file.get_mut(16..24) {
        own.copy_from_slice(&length.to_le_bytes());
    }
    if file.len() >= CHECKSUM.end {
        let sum = SipHasher13::new().hash(&file[CHECKSUM.end..]).as_bytes();
        file[CHECKSUM].copy_from_slice(&sum);
    }
}

/// Reads a core, or the parts that a pointer names. Parts of another revision are read too, as if they were of the set
/// that the pointer does not name.
fn read<'a>(core: &'a [u8], parts: &'a [u8]) -> Option<Snapshot<&'a [u8]>> {
    let Some(pointer) = Pointer::read(core).ok()? else { return Snapshot::read(core).ok() };
    assert!(files::part_lengths(pointer.length()).count() <= files::MAX_CORE_PARTS);
    assert!(core_length(parts).is_ok_and(|length| length <= files::MAX_CORE_BYTES) || Snapshot::read(parts).is_err());
    let named = Snapshot::read_parts(parts, &pointer).ok();
    assert!(named.as_ref().is_none_or(|snapshot| snapshot.revision() == pointer.revision()));
    named.or_else(|| Snapshot::read_other_parts(parts, &pointer).ok())
}

/// Reads the files as the sidecar does, and calls every function of the snapshot.
fn exercise(files: &[(&str, &[u8])], role: Role) {
    let (parts, others): (Vec<_>, Vec<_>) = files[1..].iter().partition(|(name, _)| files::is_core_part(name));
    let parts = parts.iter().map(|(_, bytes)| *bytes).collect::<Vec<_>>().concat();
    let Some(mut snapshot) = read(files[0].1, &parts) else { return };
    let (documents, overrides): (Vec<_>, Vec<_>) =
        others.into_iter().partition(|(name, _)| name.starts_with("document"));
    for (_, bytes) in overrides {
        let _ = snapshot.attach(bytes);
    }
    if let Ok(document) = snapshot.document(documents.iter().map(|(_, bytes)| *bytes).collect()) {
        for file in 0..=documents.len() {
            document.deflated(file);
        }
    }
    let mut request = RequestState::default();
    let mut out = Vec::new();
    out.extend_from_slice(snapshot.flags(role));
    for name in FEATURES {
        snapshot.flag(role, name);
        snapshot.write_ofrep_flag(&mut request, role, name, &mut out);
    }
    for (identifier, plan, age) in
        [("user_1", "pro", "31"), ("anybody", "aab aa", "-7"), ("", "31", "99999999999999999999")]
    {
        request.clear();
        snapshot.identify(&mut request, identifier);
        snapshot.set_trait(&mut request, "plan", TraitValue::String(plan));
        snapshot.set_trait(&mut request, "email", TraitValue::String("aabaa@example.com"));
        snapshot.set_trait(&mut request, "country", TraitValue::String("c7"));
        snapshot.set_trait(&mut request, "version", TraitValue::String("1.2.10"));
        snapshot.set_trait(&mut request, "age", TraitValue::Integer(age));
        snapshot.write_flags(&mut request, role, &mut out);
        snapshot.write_ofrep_flags(&mut request, role, &mut out);
        snapshot.explain(&mut request);
    }
    snapshot.describe();
    snapshot.role_of("client-key");
}
