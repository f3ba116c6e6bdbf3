//! The target `document` as a program of libFuzzer's, with a mutator that knows JSON.
#![no_main]

use libfuzzer_sys::{fuzz_mutator, fuzz_target, fuzzer_mutate};
use remora_fuzz::engine::{mutate_json, run};
use remora_fuzz::words::DOCUMENT;

fuzz_target!(|data: &[u8]| run(remora_fuzz::document, data));

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    mutate_json(&DOCUMENT, data, size, max_size, seed, fuzzer_mutate)
});
