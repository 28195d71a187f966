//! What a peer says to the judge, and how it says it.
//!
//! A word is given to the kernel before what it tells of goes on: before a call is made, before a handler begins its work,
//! before a lane makes its next call. Whoever is killed has therefore said all that it did: what the kernel has it delivers,
//! since the judge never says anything that could be left unread and break the line. Only a word that was being said may
//! be cut short, and what it would have told of did not go on.

use std::io::Write;
use std::net::TcpStream;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

/// Times are of the clock that all processes share, in nanoseconds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum PeerMessage {
    /// It can call and be called.
    Ready {
        instance: u64,
        tasks: usize,
        at: u64,
    },
    /// What it asked Redis at that moment was answered.
    Sees {
        at: u64,
    },
    Begun {
        number: u64,
        call: Begun,
    },
    /// A handler was started here.
    Ran {
        number: u64,
    },
    Ended {
        number: u64,
        end: End,
    },
    /// It calls no more, no call of its own is open and no handler runs.
    Quiet(Footprint),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Begun {
    pub to: u64,
    /// How long the handler takes, and whether it then fails.
    pub takes_ms: u64,
    pub fails: bool,
    pub at: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum End {
    /// With the number that the handler was given.
    Answered(u64),
    /// With the handler's words.
    Failed(String),
    /// With the name of the error.
    Otherwise(String),
}

/// What a peer that has nothing to do takes up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Footprint {
    pub tasks: usize,
    /// What was resident after a third of its life, and is now.
    pub early_bytes: u64,
    pub late_bytes: u64,
    pub life_ms: u64,
}

/// The number of a peer and what it says, of a whole line.
pub fn read(line: &[u8]) -> serde_json::Result<(u32, PeerMessage)> {
    serde_json::from_slice(line)
}

pub struct RefereeLink {
    peer: u32,
    stream: Mutex<TcpStream>,
}

impl RefereeLink {
    pub fn open(peer: u32, verifier: &str) -> RefereeLink {
        let stream = TcpStream::connect(verifier).expect("the judge is there");
        stream.set_nodelay(true).expect("an option");
        RefereeLink { peer, stream: Mutex::new(stream) }
    }

    pub fn send(&self, word: &PeerMessage) {
        let mut line = serde_json::to_vec(&(self.peer, word)).expect("words can be written");
        line.push(b'\n');
        if self.stream.lock().write_all(&line).is_err() {
            // Without a judge there is nothing to show.
            std::process::exit(1);
        }
    }
}
