//! A task that ends with what it serves.

use tokio::task::JoinHandle;

pub(super) struct Tether(JoinHandle<()>);

impl Tether {
    pub(super) fn spawn(task: impl Future<Output = ()> + Send + 'static) -> Self {
        Tether(tokio::spawn(task))
    }
}

impl Drop for Tether {
    fn drop(&mut self) {
        self.0.abort();
    }
}
