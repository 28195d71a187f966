//! Files of a bucket: what must hold is in `convoke_adapters::s3::play_document`, which tests call too.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| convoke_adapters::s3::play_document(input));
