//! The process is asked to end, by SIGTERM or SIGINT.

use std::io::Result;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// SIGTERM and SIGINT.
pub struct Stop {
    terminate: Signal,
    interrupt: Signal,
    asked: bool,
}

impl Stop {
    /// From now on, so that a signal that comes before anybody waits is not lost.
    pub fn listen() -> Result<Self> {
        let terminate = signal(SignalKind::terminate())?;
        Ok(Stop { terminate, interrupt: signal(SignalKind::interrupt())?, asked: false })
    }

    /// Completes when the process was asked to stop, also where that was long ago.
    pub async fn asked(&mut self) {
        if !self.asked {
            self.next().await;
            self.asked = true;
        }
    }

    /// Completes with the second signal.
    pub async fn asked_again(&mut self) {
        // It may be stopping without a signal: then the first one asks for no more than that.
        self.asked().await;
        self.next().await;
        // What was said last should still be seen.
        tokio::time::sleep(Duration::from_millis(1)).await;
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
