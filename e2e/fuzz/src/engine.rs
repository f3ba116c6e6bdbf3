//! What the programs of `fuzz_targets/` run.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::sync::OnceLock;

use crate::{mutate, target};

/// Names the file that keeps the input under way. The engine saves the input that panicked, took too long or too much
/// memory; not the one that overflowed the stack.
const KEPT_IN: &str = "REMORA_FUZZ_INPUT_UNDER_WAY";

/// Runs a target with one input.
pub fn run(name: &str, data: &[u8]) {
    static UNDER_WAY: OnceLock<Option<File>> = OnceLock::new();
    let under_way = UNDER_WAY.get_or_init(|| std::env::var_os(KEPT_IN).map(|path| File::create(path).unwrap()));
    if let Some(file) = under_way {
        file.set_len(0).and_then(|()| file.write_all_at(data, 0)).unwrap();
    }
    (target(name).unwrap().run)(data);
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
