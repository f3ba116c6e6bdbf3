//! Functions that the programs of `fuzz_targets/` run.

use std::cell::RefCell;
use std::fs::File;
use std::os::unix::fs::FileExt as _;

use crate::mutate;

/// Variable with the path of the file that keeps the current input. The engine saves an input that panics, or takes too
/// long or too much memory, but not an input that overflows the stack.
const KEPT_IN: &str = "REMORA_FUZZ_INPUT_UNDER_WAY";

/// File that keeps the current input: the length of the input as eight bytes, little-endian, then the input. Bytes
/// after it belong to earlier, longer inputs.
struct UnderWay {
    file: File,
    record: Vec<u8>,
}

impl UnderWay {
    fn keep(&mut self, data: &[u8]) {
        self.record.clear();
        self.record.extend_from_slice(&(data.len() as u64).to_le_bytes());
        self.record.extend_from_slice(data);
        // This runs for every input, so it is a single system call.
        self.file.write_all_at(&self.record, 0).unwrap();
    }
}

/// Runs a target with one input.
///
/// Each program names its target itself. So it has no counters of code that only other targets reach: the engine reads
/// all counters after every input.
pub fn run(target: fn(&[u8]), data: &[u8]) {
    thread_local! {
        static UNDER_WAY: RefCell<Option<UnderWay>> = RefCell::new(std::env::var_os(KEPT_IN).map(|path| UnderWay {
            file: File::create(path).unwrap(),
            record: Vec::new(),
        }));
    }
    UNDER_WAY.with_borrow_mut(|under_way| {
        if let Some(under_way) = under_way {
            under_way.keep(data);
        }
    });
    target(data);
}

/// Mutates JSON as JSON in three of four cases. `otherwise` is the engine's own mutator.
pub fn mutate_json(
    words: &[&str],
    data: &mut [u8],
    size: usize,
    most: usize,
    seed: u32,
    otherwise: impl FnOnce(&mut [u8], usize, usize) -> usize,
) -> usize {
    let mutated = (!seed.is_multiple_of(4)).then(|| mutate::json(data, size, most, seed, words)).flatten();
    mutated.unwrap_or_else(|| otherwise(data, size, most))
}
