//! What the programs of `fuzz_targets/` run.

use std::cell::RefCell;
use std::fs::File;
use std::os::unix::fs::FileExt as _;

use crate::mutate;

/// Names the file that keeps the input under way. The engine saves the input that panicked, took too long or too much
/// memory; not the one that overflowed the stack.
const KEPT_IN: &str = "REMORA_FUZZ_INPUT_UNDER_WAY";

/// The file that keeps the input under way: the input's length, in eight bytes, the lowest first, and the input. Bytes
/// behind it are of longer inputs before.
struct UnderWay {
    file: File,
    record: Vec<u8>,
}

impl UnderWay {
    fn keep(&mut self, data: &[u8]) {
        self.record.clear();
        self.record.extend_from_slice(&(data.len() as u64).to_le_bytes());
        self.record.extend_from_slice(data);
        // One call, as it is made for every input.
        self.file.write_all_at(&self.record, 0).unwrap();
    }
}

/// Runs a target with one input.
///
/// A program names its target itself, so that it has no counters of the code that only other targets reach: the engine
/// looks at all of them after every input.
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

/// Mutates JSON as JSON, three times of four. `otherwise` is the engine's own mutator.
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
