//! Messages of the bus: what must hold is in `convoke_testkit::fuzz::bus`, which tests call too.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| convoke_testkit::fuzz::bus(input));
