//! Receives the notices of resignations on a connection of its own.
//!
//! The channel is one for the whole database; a notice names the schema and the namespace. A connection that breaks is
//! replaced, and then every watch is notified, because notices may have been lost. Behind a pooler that lends a
//! connection for one transaction no notices arrive; the leases are then read at intervals.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio_postgres::AsyncMessage;
use tracing::debug;

use super::failure;
use super::rows::get;
use super::server::Server;
use crate::resignations::{Notices, Watch};

const LISTEN: &str = "listen convoke_resignations";
/// Pauses before a new connection: the first, and the longest.
const PAUSE_FIRST: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// Ends with its owner.
pub(super) struct ResignationListener {
    notices: Arc<Notices>,
    task: JoinHandle<()>,
}

impl ResignationListener {
    /// Connects in the background.
    pub(super) fn start(server: Server) -> Self {
        let notices = Arc::<Notices>::default();
        let task = tokio::spawn(listen_for_ever(server, notices.clone()));
        ResignationListener { notices, task }
    }

    pub(super) fn watch(&self, namespace: &str) -> Watch {
        self.notices.watch(namespace)
    }
}

impl Drop for ResignationListener {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn listen_for_ever(server: Server, notices: Arc<Notices>) {
    let mut pause = PAUSE_FIRST;
    loop {
        let mut is_subscribed = false;
        if let Err(failure) = listen(&server, &notices, &mut is_subscribed).await {
            debug!(error = %failure.into_error("leases"), "connection for notices of resignations failed");
        }
        pause = if is_subscribed { PAUSE_FIRST } else { (pause * 2).min(PAUSE_MAX) };
        tokio::time::sleep(pause).await;
    }
}

/// Serves one connection until it is lost.
async fn listen(server: &Server, notices: &Notices, is_subscribed: &mut bool) -> failure::Result<()> {
    let (client, mut connection) = server.dial(&["jit=off"]).await?;
    let mut schema = None;
    let mut subscribing = pin!(async {
        client.batch_execute(LISTEN).await?;
        get::<Option<String>>(&client.query_one("select current_schema()::text as name", &[]).await?, "name")
    });
    loop {
        let message = tokio::select! {
            message = poll_fn(|context| connection.poll_message(context)) => message,
            found = &mut subscribing, if !*is_subscribed => {
                schema = found?.map(|name| format!("{name}."));
                *is_subscribed = true;
                notices.notify_all();
                continue;
            }
        };
        match message {
            Some(Ok(AsyncMessage::Notification(notice))) => {
                let namespace = schema.as_deref().and_then(|schema| notice.payload().strip_prefix(schema));
                namespace.into_iter().for_each(|namespace| notices.notify(namespace));
            }
            Some(Ok(_)) => {}
            Some(Err(error)) => return Err(error.into()),
            None => return Ok(()),
        }
    }
}
