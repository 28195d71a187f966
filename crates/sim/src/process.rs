//! A simulated process: it runs, is paused, or is dead.
//!
//! Nothing that a process does counts unless it passes a port, and every port asks the process first. So a dead process is
//! one whose calls never return, and a paused one is one whose calls wait: the rest of its tasks may go on computing, and
//! nobody notices.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Running,
    Paused,
    Dead,
}

/// One life of a process. A restart makes another.
#[derive(Debug)]
pub struct Process {
    /// Its name, such as `n1` or `w2`.
    pub name: Arc<str>,
    /// Its place among the processes of its kind.
    pub place: usize,
    state: Mutex<State>,
    changed: Notify,
}

impl Process {
    pub fn new(name: Arc<str>, place: usize) -> Arc<Self> {
        Arc::new(Process { name, place, state: Mutex::new(State::Running), changed: Notify::new() })
    }

    fn become_state(&self, state: State) {
        let mut present = self.state.lock();
        if *present != State::Dead {
            *present = state;
        }
        drop(present);
        self.changed.notify_waiters();
    }

    pub fn kill(&self) {
        self.become_state(State::Dead);
    }

    pub fn pause(&self) {
        self.become_state(State::Paused);
    }

    pub fn go_on(&self) {
        self.become_state(State::Running);
    }

    pub fn is_running(&self) -> bool {
        *self.state.lock() == State::Running
    }

    /// Waits while the process is paused, and for ever once it is dead.
    pub async fn running(&self) {
        while !self.is_running() {
            self.changed.notified().await;
        }
    }

    /// Waits until it is dead.
    pub async fn died(&self) {
        while *self.state.lock() != State::Dead {
            self.changed.notified().await;
        }
    }
}
