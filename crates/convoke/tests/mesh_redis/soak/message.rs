//! The messages of a peer to the verifier, and how they are sent.
//!
//! A message is in the kernel before the event that it reports: before a call is made, before a handler begins its work,
//! before a lane makes its next call. A killed peer has therefore reported all that it did: the kernel delivers what it has,
//! since the verifier never sends anything that could be left unread and reset the connection. Only the last message may
//! be incomplete, and the event that it reports did not happen.

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
    /// Its request to Redis at that moment got a response.
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
    Replied(u64),
    /// With the handler's message.
    Failed(String),
    /// With the name of the error.
    Otherwise(String),
}

/// The memory and tasks of an idle peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Footprint {
    pub tasks: usize,
    /// The resident memory after a third of its life, and now.
    pub early_bytes: u64,
    pub late_bytes: u64,
    pub life_ms: u64,
}

/// The number of a peer and its message, from a whole line.
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
        let mut line = serde_json::to_vec(&(self.peer, word)).expect("messages can be written");
        line.push(b'\n');
        if self.stream.lock().write_all(&line).is_err() {
            // Without a judge there is nothing to show.
            std::process::exit(1);
        }
    }
}
