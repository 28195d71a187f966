//! Notices of resignations within a process: what an engine receives or does itself, passed on to those who watch.

use std::collections::HashMap;

use async_trait::async_trait;
use convoke_core::ports::Resignations;
use parking_lot::Mutex;
use tokio::sync::watch;

/// The watches of all namespaces.
#[derive(Debug, Default)]
pub(crate) struct Notices {
    watched: Mutex<HashMap<String, watch::Sender<()>>>,
}

impl Notices {
    pub(crate) fn watch(&self, namespace: &str) -> Watch {
        let mut watched = self.watched.lock();
        watched.retain(|_, notices| notices.receiver_count() > 0);
        Watch::of(watched.entry(namespace.to_owned()).or_default())
    }

    pub(crate) fn notify(&self, namespace: &str) {
        if let Some(notices) = self.watched.lock().get(namespace) {
            notices.send_replace(());
        }
    }

    /// Notifies every watch: some notices may have been lost.
    #[cfg(feature = "postgres")]
    pub(crate) fn notify_all(&self) {
        self.watched.lock().values().for_each(|notices| notices.send_replace(()));
    }
}

/// One watch. A notice that came while nobody waited is kept.
pub(crate) struct Watch(watch::Receiver<()>);

impl Watch {
    pub(crate) fn of(notices: &watch::Sender<()>) -> Self {
        Watch(notices.subscribe())
    }
}

#[async_trait]
impl Resignations for Watch {
    async fn next(&mut self) {
        if self.0.changed().await.is_err() {
            // The leases are gone.
            std::future::pending().await
        }
    }
}
