use std::sync::Arc;

use convoke_core::shards::worker::Change;

use super::worker::Shared;

/// The changes in the shards of a worker, one at a time.
///
/// Requesting the next change confirms the last one; so does dropping the stream.
pub struct Changes {
    shared: Arc<Shared>,
    number: u64,
}

impl Changes {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        let number = shared.with(|state, _| {
            state.stream += 1;
            state.is_followed = true;
            let number = state.stream;
            shared.run_rules(state, |worker, outbox| worker.start_over(outbox));
            number
        });
        shared.news.notify_waiters();
        Changes { shared, number }
    }

    /// Waits for the next change. `None` if the worker has left or was replaced, or another stream took over.
    pub async fn next(&mut self) -> Option<Change> {
        self.done();
        loop {
            let news = self.shared.news.notified();
            tokio::pin!(news);
            news.as_mut().enable();
            let change = self.shared.with(|state, now| {
                if state.stream != self.number {
                    return Err(Over);
                }
                match state.worker.change(now) {
                    Some(change) => Ok(Some(change)),
                    None if state.worker.is_gone() || self.shared.stop.is_cancelled() => Err(Over),
                    None => Ok(None),
                }
            });
            match change {
                Ok(Some(change)) => return Some(change),
                Ok(None) => news.await,
                Err(Over) => return None,
            }
        }
    }

    /// Confirms the last change without requesting another.
    pub fn done(&mut self) {
        self.shared.with(|state, _| {
            if state.stream == self.number {
                self.shared.run_rules(state, |worker, outbox| worker.acknowledge(outbox));
            }
        });
        self.shared.work.notify_one();
    }
}

impl Drop for Changes {
    fn drop(&mut self) {
        self.shared.with(|state, _| {
            if state.stream == self.number {
                state.is_followed = false;
                self.shared.run_rules(state, |worker, outbox| worker.acknowledge(outbox));
            }
        });
        self.shared.work.notify_one();
    }
}

/// The stream is over.
struct Over;
