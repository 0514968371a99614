//! Fuzz target for PartiQL statements; see `fuzz::partiql`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::partiql(data));
