//! The script that a fuzzer's bytes encode. Every sequence of bytes is a script, so that a small change of one makes a
//! small change of the other.

use std::time::Duration;

use bytes::Bytes;
use convoke_core::ports::router::Peer;
use convoke_core::shards::{Start, Strategy};

use super::Session;

/// Time passes in steps of this.
const STEP: Duration = Duration::from_millis(10);

/// Takes bytes off the front, and zeros where there are none left.
struct Tape<'a>(&'a [u8]);

impl Tape<'_> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    fn bytes(&mut self, count: usize) -> Bytes {
        let (taken, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        Bytes::copy_from_slice(taken)
    }
}

/// Plays the script of the bytes, from the first message to the silence after the last.
pub fn play(story: &[u8]) {
    let mut tape = Tape(story);
    let (strategy, start) = match tape.byte() % 7 {
        0 => (Strategy::Contiguous, Start::Fresh),
        1 => (Strategy::Sticky, Start::Fresh),
        2 => (Strategy::Rendezvous, Start::Fresh),
        3 => (Strategy::Contiguous, Start::Takeover),
        4 => (Strategy::Sticky, Start::Takeover),
        5 => (Strategy::Rendezvous, Start::Takeover),
        _ => (Strategy::Contiguous, Start::Listed(Vec::new())),
    };
    let mut session = Session::new(strategy, start);
    let mut last = Vec::new();
    while !tape.0.is_empty() {
        match tape.byte() % 8 {
            0 => session.pass(STEP * u32::from(tape.byte())),
            1 => session.on_message(&peer(&mut tape), &last),
            2 => {
                last = raw(&mut tape);
                session.on_message(&peer(&mut tape), &last);
            }
            _ => {
                last = vec![worded(&mut tape)];
                session.on_message(&peer(&mut tape), &last);
            }
        }
    }
    session.end();
}

fn peer(tape: &mut Tape<'_>) -> Peer {
    Peer(Bytes::from(vec![tape.byte() % 8]))
}

/// Frames as the fuzzer has them.
fn raw(tape: &mut Tape<'_>) -> Vec<Bytes> {
    let frames = tape.byte() % 4;
    (0..frames)
        .map(|_| {
            let length = usize::from(tape.byte());
            tape.bytes(length)
        })
        .collect()
}

/// A message that is understood, most of the time.
fn worded(tape: &mut Tape<'_>) -> Bytes {
    let kind = ["register", "heartbeat", "heartbeat", "leave", "released", "assignment"][usize::from(tape.byte() % 6)];
    let (service, worker, count) = (tape.byte() % 4, tape.byte() % 16, tape.byte());
    let mut data = format!(r#""serviceName":"s{service}","workerId":"w{worker}","maxShardCount":{count}"#);
    let more = tape.byte();
    if more & 1 != 0 {
        let first = tape.byte();
        let shards: Vec<String> = (first..first.saturating_add(more >> 4)).map(|shard| shard.to_string()).collect();
        data += &format!(r#","assignedShards":[{0}],"shards":[{0}]"#, shards.join(","));
    }
    if more & 2 != 0 {
        // Around the versions that the coordinator begins with, and far above.
        let version =
            [1_u64 << 30, 0, 1 << 53, u64::MAX][usize::from(tape.byte() % 4)].saturating_add(tape.byte().into());
        data += &format!(r#","version":{version}"#);
    }
    if more & 4 != 0 {
        data += r#","handoff":true"#;
    }
    if more & 8 != 0 {
        data += &format!(r#","beat":{}"#, tape.byte());
    }
    Bytes::from(format!(r#"{{"type":"{kind}","data":{{{data}}}}}"#))
}
