//! A zone and a cron expression: what must hold is in `convoke_testkit::fuzz::cron`, which tests call too.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| convoke_testkit::fuzz::cron(input));
