//! Fuzz target for every kind of expression; see `fuzz::expression`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::expression(data));
