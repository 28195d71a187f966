//! Signals that ask the process to stop: SIGTERM and SIGINT.

use std::io::Result;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Listens for SIGTERM and SIGINT.
pub struct Stop {
    terminate: Signal,
    interrupt: Signal,
    asked: bool,
}

impl Stop {
    /// Starts to listen, so that a signal before the first wait is not lost.
    pub fn listen() -> Result<Self> {
        let terminate = signal(SignalKind::terminate())?;
        Ok(Stop { terminate, interrupt: signal(SignalKind::interrupt())?, asked: false })
    }

    /// Completes when the process was asked to stop; at once if that happened before.
    pub async fn asked(&mut self) {
        if !self.asked {
            self.next().await;
            self.asked = true;
        }
    }

    /// Completes with the second signal.
    pub async fn asked_again(&mut self) {
        // If it stops without a signal, the first signal only confirms that.
        self.asked().await;
        self.next().await;
        // Gives the last log lines time to be written.
        tokio::time::sleep(Duration::from_millis(1)).await;
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
