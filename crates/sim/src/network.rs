//! The network between the processes and their services: draws the fate of every call from the faults of the moment.

use std::sync::Arc;
use std::time::Duration;

use convoke_adapters::memory::SeededChance;
use convoke_core::ports::Chance;
use parking_lot::Mutex;
use serde::Serialize;
use tokio::time::Instant;

use crate::fault::{Fault, Kind};
use crate::history::History;
use crate::process::Process;
use crate::trace::Trace;

/// A service that processes call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Service {
    Store,
    Bus,
    Leases,
}

impl Service {
    pub const ALL: [Service; 3] = [Service::Store, Service::Bus, Service::Leases];

    pub const fn name(self) -> &'static str {
        match self {
            Service::Store => "store",
            Service::Bus => "bus",
            Service::Leases => "leases",
        }
    }
}

/// What happens to a call.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Fate {
    /// How long it takes to arrive.
    pub before: Duration,
    pub applies: bool,
    /// It arrives although its caller has given up.
    pub is_late: bool,
    pub reply: Reply,
    /// How long the reply takes.
    pub after: Duration,
}

/// What the caller learns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reply {
    Delivered,
    /// Nothing happened, and the caller knows.
    Unavailable,
    /// The caller does not know whether it was applied.
    Lost,
}

impl Reply {
    pub(crate) const fn suffix(self) -> &'static str {
        match self {
            Reply::Delivered => "",
            Reply::Unavailable => ", unavailable",
            Reply::Lost => ", reply lost",
        }
    }
}

/// What happens to a message on the bus.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Passage {
    pub is_lost: bool,
    pub is_repeated: bool,
    pub delay: Duration,
}

/// Shared by all processes of a world.
pub struct Network {
    chance: SeededChance,
    active: Mutex<Vec<Fault>>,
    began: Instant,
    pub history: History,
    trace: Mutex<Trace>,
}

impl Network {
    pub fn new(seed: u64, trace: Trace) -> Arc<Self> {
        Arc::new(Network {
            chance: SeededChance::new(seed),
            active: Mutex::default(),
            began: Instant::now(),
            history: History::default(),
            trace: Mutex::new(trace),
        })
    }

    /// Returns the virtual time since the world began.
    pub fn now_ms(&self) -> u64 {
        self.began.elapsed().as_millis() as u64
    }

    pub fn chance(&self) -> &dyn Chance {
        &self.chance
    }

    pub fn begin(&self, fault: Fault) {
        self.active.lock().push(fault);
    }

    pub fn end(&self, fault: &Fault) {
        self.active.lock().retain(|active| active != fault);
    }

    pub fn heal(&self) {
        self.active.lock().clear();
    }

    /// Adds a line to the trace.
    pub fn note(&self, process: &Process, line: impl FnOnce() -> String) {
        self.note_of(&process.name, line);
    }

    pub fn note_of(&self, who: &str, line: impl FnOnce() -> String) {
        self.trace.lock().add(self.now_ms(), who, line);
    }

    /// Adds a step that the trace counts and does not show.
    pub fn step(&self, process: &Process) {
        self.trace.lock().count(self.now_ms(), &process.name);
    }

    pub fn take_trace(&self) -> Trace {
        std::mem::take(&mut self.trace.lock())
    }

    fn roll(&self, probability: f64) -> bool {
        self.chance().fraction() < probability
    }

    fn up_to_ms(&self, most: u64) -> Duration {
        Duration::from_millis((self.chance().fraction() * most as f64) as u64)
    }

    /// Draws what happens to a call.
    pub fn fate(&self, service: Service, process: &Process, is_write: bool) -> Fate {
        let mut fate = Fate {
            before: if self.roll(0.3) { self.up_to_ms(4) } else { Duration::ZERO },
            applies: true,
            is_late: false,
            reply: Reply::Delivered,
            after: Duration::ZERO,
        };
        let active = self.active.lock().clone();
        let is_node = process.name.starts_with('n');
        for fault in &active {
            let is_meant = is_node && fault.target == process.place && fault.service == service;
            match fault.kind {
                Kind::Cut if is_meant => {
                    let only_replies = fault.variant < 0.3;
                    (fate.applies, fate.reply) =
                        (only_replies, if only_replies { Reply::Lost } else { Reply::Unavailable });
                    fate.after = Duration::from_millis(100);
                }
                Kind::Unknown if is_meant && is_write && self.roll(0.4) => fate.reply = Reply::Lost,
                Kind::Late if is_meant && is_write => {
                    fate.is_late = true;
                    fate.before = Duration::from_millis(1_500) + self.up_to_ms(3_500);
                }
                Kind::Slow if fault.service == service => {
                    let most = 50 + (fault.variant * 900.0) as u64;
                    // A slow reply is another fault than a slow request: the lease already runs.
                    let span = self.up_to_ms(most);
                    if self.roll(0.5) { fate.after += span } else { fate.before += span }
                }
                Kind::Full if service == Service::Store && is_write => {
                    (fate.applies, fate.reply) = (false, Reply::Unavailable);
                }
                Kind::RestartStore if service == Service::Store => {
                    fate.applies = self.roll(0.5);
                    fate.reply = if is_write { Reply::Lost } else { Reply::Unavailable };
                    fate.after = Duration::from_millis(20);
                }
                _ => {}
            }
        }
        fate
    }

    /// Returns whether a process does not receive from the bus now.
    pub fn is_cut_from_bus(&self, process: &Process) -> bool {
        let is_meant = |fault: &Fault| fault.kind == Kind::Cut && fault.service == Service::Bus;
        let active = self.active.lock();
        process.name.starts_with('n') && active.iter().any(|fault| is_meant(fault) && fault.target == process.place)
    }

    /// Draws what happens to a message on a topic, or to an entry of a queue.
    pub fn passage(&self, is_entry: bool) -> Passage {
        let active = self.active.lock().clone();
        let mut passage = Passage::default();
        for fault in &active {
            match fault.kind {
                Kind::Lose if !is_entry => passage.is_lost |= self.roll(0.3 + fault.variant * 0.7),
                Kind::ForgetSuffix if is_entry => passage.is_lost = true,
                Kind::Repeat => passage.is_repeated |= self.roll(0.5),
                Kind::Reorder => passage.delay = self.up_to_ms(400),
                _ => {}
            }
        }
        passage
    }

    /// Draws what happens to a worker's call at this node; true twice: it is sent again.
    pub fn link_fate(&self, node: usize) -> (Fate, bool) {
        let mut fate = Fate {
            before: if self.roll(0.3) { self.up_to_ms(4) } else { Duration::ZERO },
            applies: true,
            is_late: false,
            reply: Reply::Delivered,
            after: Duration::ZERO,
        };
        let mut is_repeated = false;
        let active = self.active.lock().clone();
        for fault in active.iter().filter(|fault| fault.kind == Kind::Link && fault.target == node) {
            let what = self.chance().fraction();
            if what < 0.3 {
                (fate.applies, fate.reply) = (false, Reply::Unavailable);
            } else if what < 0.6 {
                fate.reply = Reply::Lost;
            } else if what < 0.8 {
                is_repeated = true;
            }
            fate.before += self.up_to_ms((fault.variant * 600.0) as u64);
        }
        (fate, is_repeated)
    }
}
