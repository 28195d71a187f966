//! The messages between a process and the guard of its command, and the clock of their deadlines.
//!
//! Each message is a line of JSON on a socket: orders one way, events the other way. The end of the stream means that the other
//! side has died. Deadlines are moments of a clock that both sides read, not spans: a span would grow by every pause between
//! sending and receiving. The clock goes on while the machine sleeps, as a lease does.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

#[cfg(target_os = "linux")]
const CLOCK: ClockId = ClockId::Boottime;
#[cfg(not(target_os = "linux"))]
const CLOCK: ClockId = ClockId::Monotonic;

/// A moment of the clock that both sides read.
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

/// When the guard ends a command on its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Deadline {
    pub terminate_at: Moment,
    pub kill_at: Moment,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Order {
    /// Starts the command, with these variables added to its environment. Three files for its standard streams come with the order;
    /// without them the command has no input and writes where the guard does.
    Start { env: Vec<(String, String)>, deadline: Option<Deadline> },
    /// Moves the deadline, unless it has passed.
    SetDeadline(Deadline),
    /// Sends a signal to the command's process group.
    Signal(i32),
    /// SIGTERM to the command's process group now, SIGKILL to the whole tree after the grace.
    Stop,
    /// SIGKILL to the whole tree.
    Kill,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum GuardEvent {
    /// The command runs. It leads a process group of the same id.
    Started { pid: i32 },
    /// The command could not be started, for this reason. The guard can start another.
    NotStarted(String),
    /// The deadline has passed: the command got SIGTERM, and a later deadline does not save it.
    Stopping,
    /// The command ended, and nothing of its tree is left. The guard can start another.
    Ended(Ending),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Ending {
    Code(u8),
    Signal(i32),
}

impl Ending {
    /// Returns the exit code that a shell would: 128 + N for signal N.
    pub fn exit_code(self) -> u8 {
        match self {
            Ending::Code(code) => code,
            Ending::Signal(signal) => u8::try_from(signal.saturating_add(128)).unwrap_or(u8::MAX),
        }
    }
}

pub fn to_line(message: &impl Serialize) -> Vec<u8> {
    let mut line = serde_json::to_vec(message).expect("every message can be written as JSON");
    line.push(b'\n');
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_survives_the_way_there() {
        let now = Moment::now();
        let deadline = Deadline { terminate_at: now, kill_at: now.after(Duration::from_secs(1)) };
        let start = Order::Start { env: vec![("NAME".into(), "a\nb \"c\"".into())], deadline: Some(deadline) };
        for order in [start, Order::SetDeadline(deadline), Order::Signal(15), Order::Stop, Order::Kill] {
            assert_eq!(serde_json::from_slice::<Order>(&to_line(&order)).expect("an order"), order);
        }
        for event in [
            GuardEvent::Started { pid: 7 },
            GuardEvent::NotStarted("no".into()),
            GuardEvent::Stopping,
            GuardEvent::Ended(Ending::Signal(9)),
        ] {
            assert_eq!(serde_json::from_slice::<GuardEvent>(&to_line(&event)).expect("an event"), event);
        }
    }

    #[test]
    fn an_ending_has_the_exit_code_of_a_shell() {
        assert_eq!([Ending::Code(7), Ending::Signal(9), Ending::Signal(15)].map(Ending::exit_code), [7, 137, 143]);
    }
}
