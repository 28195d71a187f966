//! Messages of a mesh: what must hold is in `convoke_testkit::fuzz::mesh`, which tests call too.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| convoke_testkit::fuzz::mesh(input));
