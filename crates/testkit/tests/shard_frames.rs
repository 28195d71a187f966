//! A hundred thousand messages from strangers, a fifth of them in a quick run, in every strategy, and sequences of messages as a fuzzer makes them.

use std::time::Duration;

use convoke_core::shards::{Start, Strategy};
use convoke_testkit::scale::Scaled;
use convoke_testkit::shard_frames::hostile::{self, Dice};
use convoke_testkit::shard_frames::{Session, play};

const MESSAGES: Scaled<usize> = Scaled { quick: 20_000, full: 100_000 };
const SESSIONS: usize = 60;
/// Of what was sent before, what may come again.
const REMEMBERED: usize = 50;

fn play_hostile(seed: usize, messages: usize) -> (usize, usize) {
    let mut dice = Dice::new(seed as u64 + 1);
    let strategy = [Strategy::Contiguous, Strategy::Sticky, Strategy::Rendezvous][seed % 3];
    let start = [Start::Fresh, Start::Takeover, Start::Listed(Vec::new())][seed / 3 % 3].clone();
    let mut session = Session::new(strategy, start);
    let mut before = Vec::new();
    for message in 0..messages {
        let frames = hostile::frames(&mut dice, &before);
        session.on_message(&hostile::peer(&mut dice), &frames);
        let at = dice.roll(REMEMBERED);
        if at < before.len() {
            before[at] = frames;
        } else {
            before.push(frames);
        }
        if message % 10 == 0 {
            session.pass(Duration::from_millis(dice.roll(120) as u64));
        }
        if message % 100 == 0 {
            session.inspect();
        }
    }
    let counts = (session.understood(), session.refused());
    session.end();
    counts
}

#[test]
fn messages_from_strangers_break_nothing_and_leave_nothing() {
    let count = MESSAGES.get();
    let (mut understood, mut refused) = (0, 0);
    for seed in 0..SESSIONS {
        let counts = play_hostile(seed, count.div_ceil(SESSIONS));
        understood += counts.0;
        refused += counts.1;
    }
    // Neither all noise nor all sense, or the rest proves little.
    assert!(understood > count / 4, "only {understood} were understood");
    assert!(refused > count / 10, "only {refused} were refused");
}

#[test]
fn any_bytes_are_a_story_that_ends_well() {
    play(&[]);
    for seed in 0..400 {
        let mut dice = Dice::new(seed);
        let story: Vec<u8> = (0..dice.roll(2000)).map(|_| dice.roll(256) as u8).collect();
        play(&story);
    }
}
