//! Any bytes as a story of peers and frames, played to the parser and the coordinator of shards. The story and what must
//! hold in it are `convoke_testkit::shard_frames`, which the tests play too.
#![no_main]

libfuzzer_sys::fuzz_target!(|story: &[u8]| convoke_testkit::shard_frames::play(story));
