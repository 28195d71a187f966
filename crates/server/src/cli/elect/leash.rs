//! What the elector and the guard of its command say to each other, and by which clock.
//!
//! They share a socket: a line of JSON is an order one way and a word the other way. Its end tells either of them that the
//! other has died. Deadlines are moments of a clock that both read, not spans: a span grows by every pause between its
//! being computed and its being heard. The clock goes on while the machine sleeps, as the lease does.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

#[cfg(target_os = "linux")]
const CLOCK: ClockId = ClockId::Boottime;
#[cfg(not(target_os = "linux"))]
const CLOCK: ClockId = ClockId::Monotonic;

/// A heartbeat comes within this part of the lease at the latest, or the command would be told to end before its first renewal.
pub const BEAT_PART: u32 = 2;
/// The command is dead this part of the lease before the lease is uncertain.
const MARGIN_PART: u32 = 20;
/// And has been asked to end this part of the lease before that.
const GRACE_PART: u32 = 5;

/// A moment of the clock that both read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Moment(Duration);

impl Moment {
    pub fn now() -> Moment {
        let time = clock_gettime(CLOCK);
        let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
        Moment(Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or_default()))
    }

    pub fn after(self, span: Duration) -> Moment {
        Moment(self.0.saturating_add(span))
    }

    pub fn since(self, earlier: Moment) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

/// When a command must go that nobody prolongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Hold {
    pub terminate_at: Moment,
    pub kill_at: Moment,
}

impl Hold {
    /// For a lease of `ttl` that is certain for `left` after `now`. Of a lease as `--ttl` makes it a heartbeat comes every third,
    /// and is tried again at a ninth where it fails at once: two or three failures, or one that hangs, and the command is told
    /// to end. Whatever is configured, one comes within [`BEAT_PART`] of the lease, in time for a slow answer.
    pub fn of(now: Moment, left: Duration, ttl: Duration, grace: Duration) -> Hold {
        let kill_after = left.saturating_sub(ttl / MARGIN_PART);
        let terminate_after = kill_after.saturating_sub(grace.min(ttl / GRACE_PART));
        Hold { terminate_at: now.after(terminate_after), kill_at: now.after(kill_after) }
    }
}

/// What the elector tells the guard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Order {
    /// The first one starts the command.
    Hold(Hold),
    /// Pass a signal on to all processes of the command.
    Signal(i32),
    Kill,
}

/// What the guard tells the elector.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Word {
    /// The command runs, as this process and its group.
    Started { pid: i32 },
    /// Nobody prolonged in time: the command was told to end, and there is no way back.
    Stopping,
    /// Nothing of the command runs any more.
    Ended(Ending),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Ending {
    Code(u8),
    Signal(i32),
}

impl Ending {
    /// As shells have it.
    pub fn exit_code(self) -> u8 {
        match self {
            Ending::Code(code) => code,
            Ending::Signal(signal) => u8::try_from(signal.saturating_add(128)).unwrap_or(u8::MAX),
        }
    }
}

/// A message as a line.
pub fn line_of(message: &impl Serialize) -> Vec<u8> {
    let mut line = serde_json::to_vec(message).expect("a message has nothing that JSON lacks");
    line.push(b'\n');
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_command_is_asked_to_end_and_is_dead_before_the_lease_is_uncertain() {
        let now = Moment(s(100));
        let hold = Hold::of(now, s(18), s(20), s(10));
        assert_eq!((hold.terminate_at, hold.kill_at), (Moment(s(113)), Moment(s(117))));
        let hurried = Hold::of(now, s(18), s(20), s(1));
        assert_eq!((hurried.terminate_at, hurried.kill_at), (Moment(s(116)), Moment(s(117))));
        let late = Hold::of(now, s(0), s(20), s(10));
        assert_eq!((late.terminate_at, late.kill_at), (now, now));
    }

    #[test]
    fn what_is_said_is_understood() {
        let hold = Hold::of(Moment::now(), s(9), s(10), s(1));
        for order in [Order::Hold(hold), Order::Signal(15), Order::Kill] {
            assert_eq!(serde_json::from_slice::<Order>(&line_of(&order)).expect("understood"), order);
        }
        for word in [Word::Started { pid: 7 }, Word::Stopping, Word::Ended(Ending::Signal(9))] {
            assert_eq!(serde_json::from_slice::<Word>(&line_of(&word)).expect("understood"), word);
        }
    }

    #[test]
    fn an_ending_is_an_exit_code_as_shells_have_it() {
        assert_eq!([Ending::Code(7), Ending::Signal(9), Ending::Signal(15)].map(Ending::exit_code), [7, 137, 143]);
    }
}
