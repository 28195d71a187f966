//! Messages that no honest worker sends, and honest ones among them, from a seed.

use bytes::Bytes;
use convoke_core::ports::router::Peer;

/// Small pseudo-random numbers, the same for a seed.
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Dice {
        Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// Below `bound`.
    pub fn roll(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from((self.0 >> 11) % bound.max(1) as u64).unwrap_or(0)
    }

    fn of<'a>(&mut self, choices: &[&'a str]) -> &'a str {
        choices[self.roll(choices.len())]
    }
}

/// Peers that talk, some under the address of another.
pub fn peer(dice: &mut Dice) -> Peer {
    Peer(Bytes::from(format!("peer-{}", dice.roll(40))))
}

/// One message of the stream of `dice`, as frames. `before` is what was sent earlier, which comes again now and then.
pub fn frames(dice: &mut Dice, before: &[Vec<Bytes>]) -> Vec<Bytes> {
    match dice.roll(20) {
        0 => garbage(dice),
        1 => torn(dice),
        2 => flipped(dice),
        3 => many_parts(dice),
        4 => vec![Bytes::from(wrong(dice))],
        5 => vec![Bytes::from(oversized(dice))],
        6 | 7 if !before.is_empty() => before[dice.roll(before.len())].clone(),
        8 => vec![Bytes::new(), Bytes::from(honest(dice))],
        _ => vec![Bytes::from(honest(dice))],
    }
}

fn honest(dice: &mut Dice) -> String {
    let kind = dice.of(&["register", "register", "heartbeat", "heartbeat", "heartbeat", "leave", "released"]);
    let (service, worker) = (dice.roll(14), dice.roll(40));
    // Seldom very many, which cost a while to spread.
    let count = if dice.roll(2000) == 0 { 60_000 } else { [0, 1, 7, 64, 64, 64, 300, 1000][dice.roll(8)] };
    let mut data = format!(r#""serviceName":"s{service}","workerId":"w{worker}","maxShardCount":{count}"#);
    if dice.roll(2) == 0 {
        data += &format!(r#","{}":{}"#, dice.of(&["assignedShards", "shards"]), shards(dice));
    }
    if dice.roll(3) == 0 {
        let version = [0, 1, 1 << 30, (1 << 30) + 5, (1 << 53) - 1, u64::MAX][dice.roll(6)];
        data += &format!(r#","version":{version}"#);
    }
    if dice.roll(3) == 0 {
        data += dice.of(&[r#","handoff":true"#, r#","handoff":false"#, r#","beat":7"#, r#","unknown":{"a":[1]}"#]);
    }
    format!(r#"{{"type":"{kind}","data":{{{data}}}}}"#)
}

fn shards(dice: &mut Dice) -> String {
    let (first, count) = (dice.roll(70), dice.roll(30));
    let shards: Vec<String> = (first..first + count).map(|shard| shard.to_string()).collect();
    format!("[{}]", shards.join(","))
}

/// JSON, and yet no message.
fn wrong(dice: &mut Dice) -> String {
    let value = dice.of(&[
        "null",
        "-1",
        "2.5",
        "1e400",
        "-0",
        "99999999999999999999",
        "\"4\"",
        "true",
        "[]",
        "{}",
        "\"\\ud800\"",
        "\"\\u0000\"",
        "[-1]",
        "[1.5]",
        "[null]",
        "[\"1\"]",
        "[4294967296]",
        "\"\"",
        "[[[[]]]]",
    ]);
    let field = dice.of(&[
        "serviceName",
        "workerId",
        "maxShardCount",
        "assignedShards",
        "shards",
        "version",
        "handoff",
        "beat",
    ]);
    let kind = dice.of(&["register", "heartbeat", "leave", "released", "REGISTER", "", "assignment", "error"]);
    match dice.roll(5) {
        0 => value.to_owned(),
        1 => format!(r#"{{"type":{value},"data":{value}}}"#),
        2 => format!(r#"{{"type":"{kind}"}}"#),
        3 => format!(r#"{{"type":"{kind}","type":"{kind}","data":{{"{field}":{value},"{field}":{value}}}}}"#),
        _ => {
            let honest = r#""serviceName":"s","workerId":"w","maxShardCount":3"#;
            format!(r#"{{"type":"{kind}","data":{{{honest},"{field}":{value}}}}}"#)
        }
    }
}

/// Too long, too deep, too many.
fn oversized(dice: &mut Dice) -> String {
    let size = [256, 300, 5_000, 120_000][dice.roll(4)];
    match dice.roll(5) {
        0 => format!(r#"{{"type":"register","data":{{"serviceName":"{}"}}}}"#, "x".repeat(size)),
        1 => "[".repeat(size),
        2 => r#"{"data":"#.repeat(size / 8),
        3 => format!(r#"{{"type":"heartbeat","data":{{"assignedShards":[{}0]}}}}"#, "0,".repeat(size)),
        _ => format!(r#"{{"type":"{}","data":{{}}}}"#, "y".repeat(size)),
    }
}

fn garbage(dice: &mut Dice) -> Vec<Bytes> {
    let frames = dice.roll(4);
    (0..frames).map(|_| (0..dice.roll(60)).map(|_| dice.roll(256) as u8).collect()).collect()
}

fn torn(dice: &mut Dice) -> Vec<Bytes> {
    let text = honest(dice);
    let (whole, at) = (Bytes::from(text), dice.roll(60));
    let at = at.min(whole.len());
    vec![whole.slice(..at), whole.slice(at..)]
}

fn flipped(dice: &mut Dice) -> Vec<Bytes> {
    let mut bytes = honest(dice).into_bytes();
    for _ in 0..=dice.roll(3) {
        let at = dice.roll(bytes.len());
        bytes[at] ^= 1 << dice.roll(8);
    }
    vec![Bytes::from(bytes)]
}

fn many_parts(dice: &mut Dice) -> Vec<Bytes> {
    let parts = dice.roll(1000);
    let mut frames = vec![Bytes::from(honest(dice))];
    frames.resize(parts.max(1), Bytes::from_static(b"{}"));
    frames
}
