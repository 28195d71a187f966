//! The signals that a singleton passes on to its command.

use std::future::poll_fn;
use std::io;
use std::task::Poll;

use rustix::process::Signal;
use tokio::signal::unix::{self, SignalKind, signal};

/// Those that ask for an end. Each is passed on first.
const ENDS: [Signal; 3] = [Signal::TERM, Signal::INT, Signal::QUIT];
/// Those that mean whatever the command takes them for. Where there is none, the first means that the terminal has gone.
const MESSAGES: [Signal; 3] = [Signal::HUP, Signal::USR1, Signal::USR2];

pub struct Signals {
    streams: Vec<(Signal, unix::Signal)>,
    has_command: bool,
}

impl Signals {
    /// From now on none of them ends the process by itself.
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

    /// The next one that asks for an end, where no command runs. The others are nobody's then: one that is sent to a fleet
    /// to have its leader read a file again must not end those that wait.
    pub async fn end(&mut self) -> Signal {
        loop {
            let signal = self.next().await;
            if self.ends(signal) {
                return signal;
            }
        }
    }
}
