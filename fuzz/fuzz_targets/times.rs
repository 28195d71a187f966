//! Durations, instants and rate limits: what must hold is in `convoke_testkit::fuzz::times`, which tests call too.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| convoke_testkit::fuzz::times(input));
