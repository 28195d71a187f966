//! Reads any bytes by the parsers of `core`, for fuzzers and for the tests that share their inputs.
//!
//! No input may make a parser panic or run for long. Whatever it accepts keeps what its documents promise: it reads the same
//! once it is written, and lies within the limits. [`replay`] runs a function of this kind over the inputs in
//! `fuzz/corpus`, and over changed ones.

use std::path::{Path, PathBuf};

use convoke_core::jobs::cron::{Cron, DayRule};
use convoke_core::jobs::{RateLimit, wire};
use convoke_core::limits::NAME_BYTES_MAX;
use convoke_core::mesh::envelope::{self, Envelope};
use convoke_core::{duration, instant};
use jiff::Timestamp;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use crate::shard_frames::hostile::Dice;

/// Instants at which clocks change in some zones, and ordinary ones.
const MOMENTS: [i64; 5] = [0, 1_743_296_399, 1_761_440_400, 1_893_456_000, 4_102_444_799];

/// A zone, `or` or `and`, and a cron expression, each on a line.
pub fn cron(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let mut lines = text.splitn(3, '\n');
    let mut line = || lines.next().unwrap_or_default();
    let (zone, day, expression) = (line(), line(), line());
    let day = if day == "and" { DayRule::And } else { DayRule::Or };
    let Ok(cron) = Cron::parse(expression, zone, day) else { return };
    cron.words();
    for second in MOMENTS {
        let at = Timestamp::from_second(second).expect("in range");
        let (next, last) = (cron.next_after(at), cron.last_before(at));
        assert!(next.is_none_or(|next| next > at) && last.is_none_or(|last| last < at), "{text:?} at {at}");
        if let Some(last) = last {
            let following = cron.next_after(last);
            assert!(following.is_none_or(|tick| tick >= at), "{text:?}: {following:?} is between {last} and {at}");
        }
        if let Some(next) = next {
            let preceding = cron.last_before(next);
            assert!(preceding.is_none_or(|tick| tick <= at), "{text:?}: {preceding:?} is between {at} and {next}");
        }
    }
}

/// A duration, an instant or a rate limit.
pub fn times(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    if let Ok(parsed) = duration::parse(text) {
        assert!(parsed <= duration::DURATION_MAX);
        assert_eq!(duration::parse(&duration::format(parsed)), Ok(parsed), "{text:?}");
    }
    if let Ok(at) = instant::parse(text) {
        assert_eq!(instant::parse(&at.to_string()), Ok(at), "{text:?}");
    }
    if let Ok(limit) = text.parse::<RateLimit>() {
        assert_eq!(limit.to_string().parse::<RateLimit>().ok(), Some(limit), "{text:?}");
    }
}

/// A message of the bus, as each of its types.
pub fn bus(input: &[u8]) {
    again::<wire::Dispatch>(input);
    again::<wire::StatusMessage>(input);
    again::<wire::LogMessage>(input);
    again::<wire::Cancel>(input);
    again::<wire::Ready>(input);
    again::<wire::Outdated>(input);
    again::<wire::Interest>(input);
    again::<wire::Ended>(input);
    again::<wire::Events>(input);
    again::<wire::Bell>(input);
    again::<wire::Assigned>(input);
    again::<wire::Handoff>(input);
    again::<wire::HandoffAck>(input);
    again::<wire::Inbox>(input);
    again::<wire::CoordinatorHeartbeat>(input);
    again::<wire::DrainRequest>(input);
    if let Ok(message) = serde_json::from_slice::<wire::StatusMessage>(input) {
        drop(message.into_event().1.check());
    }
    if let Ok(message) = serde_json::from_slice::<wire::LogMessage>(input) {
        drop(message.into_event().check());
    }
    if let Ok(heartbeat) = serde_json::from_slice::<wire::WorkerHeartbeat>(input) {
        // One without a number of runs does not list them. Written, it has the number 0, which means that it lists none.
        again::<wire::WorkerHeartbeat>(&wire::encode(&heartbeat));
        heartbeat.slots();
        drop(heartbeat.check());
    }
    drop(serde_json::from_slice::<wire::Enqueue>(input));
}

/// A message that was read and written reads and writes the same.
fn again<T: Serialize + DeserializeOwned>(input: &[u8]) {
    let Ok(message) = serde_json::from_slice::<T>(input) else { return };
    let once = wire::encode(&message);
    let read = serde_json::from_slice::<T>(&once)
        .unwrap_or_else(|error| panic!("{}: {error}: {}", std::any::type_name::<T>(), String::from_utf8_lossy(&once)));
    assert_eq!(wire::encode(&read), once, "{}", std::any::type_name::<T>());
}

/// A message of a mesh.
pub fn mesh(input: &[u8]) {
    let Ok(message) = Envelope::parse(input) else { return };
    let raw = |data: &str| RawValue::from_string(data.to_owned()).expect("data is JSON");
    let written = match &message {
        Envelope::Request(request) => {
            assert!(request.id.len() <= NAME_BYTES_MAX && request.kind.len() <= NAME_BYTES_MAX, "{request:?}");
            assert!(request.timeout.is_none_or(|timeout| !timeout.is_zero()), "{request:?}");
            raw(request.data);
            return;
        }
        Envelope::Reply { id, outcome: Ok(data) } => envelope::encode_reply(id, &raw(data)),
        Envelope::Reply { id, outcome: Err(error) } => envelope::encode_refusal(id, error),
        Envelope::Heartbeat { id } => envelope::encode_heartbeat(id),
        Envelope::Broadcast { sender, kind, data } => envelope::encode_broadcast(*sender, kind, &raw(data)),
    };
    assert_eq!(Envelope::parse(&written).as_ref(), Ok(&message), "{}", String::from_utf8_lossy(&written));
}

/// Runs `play` over the corpus of a fuzzer's target, and over `changed` inputs that are made of it.
pub fn replay(target: &str, changed: usize, play: impl Fn(&[u8])) {
    let corpus = corpus(target);
    assert!(!corpus.is_empty(), "fuzz/corpus/{target} is empty");
    corpus.iter().for_each(|input| play(input));
    let mut dice = Dice::new(18);
    for _ in 0..changed {
        let mut input = corpus[dice.roll(corpus.len())].clone();
        for _ in 0..=dice.roll(4) {
            change(&mut input, &corpus, &mut dice);
        }
        play(&input);
    }
}

/// The inputs in the tree, in order of their names.
fn corpus(target: &str) -> Vec<Vec<u8>> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let entries = std::fs::read_dir(&directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    paths.iter().map(|path| std::fs::read(path).expect("a readable file")).collect()
}

/// Words that parsers treat specially.
const WORDS: [&str; 20] = [
    "null",
    "true",
    "{}",
    "[]",
    "\"\"",
    "-1",
    "0",
    "1e400",
    "18446744073709551616",
    "\\u0000",
    "\\ud800",
    "*",
    "*/0",
    "L-3W",
    "?",
    "60",
    "99999d",
    "\u{1F600}",
    ",",
    ":",
];

fn change(input: &mut Vec<u8>, corpus: &[Vec<u8>], dice: &mut Dice) {
    let at = dice.roll(input.len() + 1);
    let end = (at + 1 + dice.roll(12)).min(input.len()).max(at);
    match dice.roll(6) {
        0 => drop(input.drain(at..end)),
        1 => input.truncate(at),
        2 => input[at..end].iter_mut().for_each(|byte| *byte = dice.roll(256) as u8),
        3 => {
            let copied = input[at..end].to_vec();
            input.splice(at..at, copied);
        }
        4 => {
            let other = &corpus[dice.roll(corpus.len())];
            let from = dice.roll(other.len() + 1);
            input.truncate(at);
            input.extend(&other[from..]);
        }
        _ => drop(input.splice(at..end, WORDS[dice.roll(WORDS.len())].bytes())),
    }
}
