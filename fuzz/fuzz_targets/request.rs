//! Fuzz target for requests to a store; see `fuzz::request`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::request(data));
