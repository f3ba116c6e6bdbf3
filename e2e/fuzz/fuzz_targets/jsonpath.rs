//! The target `jsonpath` as a program of libFuzzer's.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| remora_fuzz::engine::run(remora_fuzz::jsonpath, data));
