//! Fuzz target for model files; see `fuzz::model`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::model(data));
