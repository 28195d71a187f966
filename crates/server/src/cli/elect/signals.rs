//! The signals that `convoke elect` passes on to its command.

use std::future::poll_fn;
use std::io;
use std::task::Poll;

use rustix::process::Signal;
use tokio::signal::unix::{self, SignalKind, signal};

/// Signals that ask the process to end. Each is passed on first.
const ENDS: [Signal; 3] = [Signal::TERM, Signal::INT, Signal::QUIT];
/// Signals whose meaning the command defines. Without a command, the first one means that the terminal was closed.
const MESSAGES: [Signal; 3] = [Signal::HUP, Signal::USR1, Signal::USR2];

pub struct Signals {
    streams: Vec<(Signal, unix::Signal)>,
    has_command: bool,
}

impl Signals {
    /// Listens for the signals. From now on none of them ends the process by default.
    pub fn listen(has_command: bool) -> io::Result<Signals> {
        let listen = |it: &Signal| Ok((*it, signal(SignalKind::from_raw(it.as_raw()))?));
        let streams = ENDS.iter().chain(&MESSAGES).map(listen).collect::<io::Result<_>>()?;
        Ok(Signals { streams, has_command })
    }

    pub async fn next(&mut self) -> Signal {
        poll_fn(|context| {
            for (signal, stream) in &mut self.streams {
                if stream.poll_recv(context).is_ready() {
                    return Poll::Ready(*signal);
                }
            }
            Poll::Pending
        })
        .await
    }

    pub fn ends(&self, signal: Signal) -> bool {
        ENDS.contains(&signal) || (signal == Signal::HUP && !self.has_command)
    }

    /// Returns the next signal that asks for an end, while no command runs. The others are ignored then: a SIGHUP to a
    /// fleet, so that its leader reloads a file, must not end the processes that wait.
    pub async fn end(&mut self) -> Signal {
        loop {
            let signal = self.next().await;
            if self.ends(signal) {
                return signal;
            }
        }
    }
}
