//! The target `reviews` as a program of libFuzzer's, with a mutator that knows JSON.
#![no_main]

use libfuzzer_sys::{fuzz_mutator, fuzz_target, fuzzer_mutate};
use remora_fuzz::engine::{mutate_json, run};
use remora_fuzz::words::REVIEWS;

fuzz_target!(|data: &[u8]| run(remora_fuzz::reviews, data));

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    mutate_json(&REVIEWS, data, size, max_size, seed, fuzzer_mutate)
});
