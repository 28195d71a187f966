//! Bodies of HTTP requests: what must hold is in `convoke_http::play_body`, which tests call too.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| convoke_http::play_body(input));
