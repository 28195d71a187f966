//! The one connection on which a process sends its commands.
//!
//! Requests of all tasks share it, in the order in which they were made; none of them blocks. A connection that breaks,
//! falls silent or leads to a server that is no longer master is replaced; attempts never stop and have jitter.
//! Meanwhile requests wait briefly and then fail as `Unavailable`: nothing was sent.

use std::sync::Arc;
use std::time::Duration;

use convoke_core::{Error, Result};
use redis::aio::MultiplexedConnection;
use redis::{Cmd, Pipeline, PushInfo, PushKind, RedisResult, Value};
use tokio::sync::{mpsc, watch};
use tracing::debug;

use super::abort_on_drop::AbortOnDrop;
use super::dial::Dialer;
use super::failure::{Intent, failure, is_fatal};
use super::script::Script;

/// How long a request waits for a connection that is being made.
const CONNECTION_WAIT: Duration = Duration::from_millis(500);
/// How often an idle connection is pinged.
const PING_INTERVAL: Duration = Duration::from_secs(5);

/// Clones share the connection.
#[derive(Clone)]
pub(super) struct Commands {
    what: &'static str,
    address: Arc<str>,
    live: watch::Receiver<Option<Live>>,
    broken: mpsc::UnboundedSender<u64>,
    _task: Arc<AbortOnDrop>,
}

#[derive(Clone)]
struct Live {
    number: u64,
    connection: MultiplexedConnection,
}

impl Commands {
    /// Fails if the first connection fails; later ones are made in the background.
    pub(super) async fn open(what: &'static str, dialer: Dialer) -> Result<Self> {
        let (broken, reports) = mpsc::unbounded_channel();
        let address = dialer.address().into();
        let first = dialer.dial(on_push(1, broken.clone())).await;
        let connection = first.map_err(|error| failure(what, Intent::Ask, error))?;
        let (current, live) = watch::channel(Some(Live { number: 1, connection }));
        let task = AbortOnDrop::spawn(keep_open(what, dialer, current, reports, broken.clone()));
        Ok(Commands { what, address, live, broken, _task: Arc::new(task) })
    }

    /// Makes every connection in the background, also the first.
    pub(super) fn open_later(what: &'static str, dialer: Dialer) -> Self {
        let (broken, reports) = mpsc::unbounded_channel();
        let address = dialer.address().into();
        let (current, live) = watch::channel(None);
        let task = AbortOnDrop::spawn(keep_open(what, dialer, current, reports, broken.clone()));
        Commands { what, address, live, broken, _task: Arc::new(task) }
    }

    pub(super) async fn ask(&self, command: &Cmd) -> Result<Value> {
        self.one(Intent::Ask, command).await
    }

    pub(super) async fn change(&self, command: &Cmd) -> Result<Value> {
        self.one(Intent::Change, command).await
    }

    async fn one(&self, intent: Intent, command: &Cmd) -> Result<Value> {
        self.send(command).await?.map_err(|error| failure(self.what, intent, error))
    }

    /// Sends one command and returns the server's error to the caller. The outer error means that nothing was sent.
    pub(super) async fn send(&self, command: &Cmd) -> Result<RedisResult<Value>> {
        let mut live = self.live().await?;
        let reply = live.connection.send_packed_command(command).await.and_then(Value::extract_error);
        Ok(reply.inspect_err(|error| self.report_if_broken(live.number, error)))
    }

    /// Sends many commands in one pipeline. Each has its own reply, which may be an error of the server.
    pub(super) async fn pipe(&self, intent: Intent, commands: &Pipeline) -> Result<Vec<Value>> {
        let count = commands.cmd_iter().count();
        let mut live = self.live().await?;
        let replies = live.connection.send_packed_commands(commands, 0, count).await;
        let replies = replies.inspect_err(|error| self.report_if_broken(live.number, error));
        let replies = replies.map_err(|error| failure(self.what, intent, error))?;
        for reply in &replies {
            if let Value::ServerError(error) = reply {
                self.report_if_broken(live.number, &error.clone().into());
            }
        }
        Ok(replies)
    }

    /// Runs a script by its hash; sends its text if the server does not know it yet.
    pub(super) async fn run(&self, intent: Intent, script: &Script, keys: &[&str], args: &[&[u8]]) -> Result<Value> {
        let reply = match self.send(&script.by_hash(keys, args)).await? {
            Err(error) if error.code() == Some("NOSCRIPT") => self.send(&script.by_text(keys, args)).await?,
            other => other,
        };
        reply.map_err(|error| failure(self.what, intent, error))
    }

    /// Returns the address of Redis, without credentials.
    pub(super) fn address(&self) -> String {
        self.address.to_string()
    }

    pub(super) fn what(&self) -> &'static str {
        self.what
    }

    async fn live(&self) -> Result<Live> {
        if let Some(live) = &*self.live.borrow() {
            return Ok(live.clone());
        }
        let mut live = self.live.clone();
        match tokio::time::timeout(CONNECTION_WAIT, live.wait_for(Option::is_some)).await {
            Ok(Ok(live)) => live.clone().ok_or_else(|| self.away()),
            _ => Err(self.away()),
        }
    }

    fn away(&self) -> Error {
        Error::unavailable(self.what, "no connection to Redis")
    }

    /// Replaces the connection if the error shows that it is unusable.
    fn report_if_broken(&self, number: u64, error: &redis::RedisError) {
        if is_fatal(error) {
            debug!(what = self.what, %error, "connection to Redis dropped");
            let _ = self.broken.send(number);
        }
    }
}

/// Reports the loss of connection `number`.
fn on_push(number: u64, broken: mpsc::UnboundedSender<u64>) -> impl Fn(PushInfo) + Clone + Send + Sync + 'static {
    move |push| {
        if push.kind == PushKind::Disconnection {
            let _ = broken.send(number);
        }
    }
}

async fn keep_open(
    what: &'static str,
    dialer: Dialer,
    current: watch::Sender<Option<Live>>,
    mut reports: mpsc::UnboundedReceiver<u64>,
    broken: mpsc::UnboundedSender<u64>,
) {
    let mut number = 1;
    loop {
        let connection = current.borrow().clone();
        tokio::select! {
            () = is_lost(&mut reports, number) => {}
            () = is_silent(connection) => {}
        }
        current.send_replace(None);
        number += 1;
        let connection = dialer.dial_until_connected(what, on_push(number, broken.clone())).await;
        current.send_replace(Some(Live { number, connection }));
    }
}

/// Returns once connection `number` is reported as broken; reports of earlier ones are ignored.
async fn is_lost(reports: &mut mpsc::UnboundedReceiver<u64>, number: u64) {
    while let Some(lost) = reports.recv().await {
        if lost == number {
            return;
        }
    }
    // `Commands` holds a sender itself, so this is not reached while the connection can be used.
    std::future::pending().await
}

/// Returns once a ping has no reply: a connection to an unreachable server may break without an error.
async fn is_silent(live: Option<Live>) {
    let Some(mut live) = live else { return };
    loop {
        tokio::time::sleep(PING_INTERVAL).await;
        if let Err(error) = live.connection.send_packed_command(&redis::cmd("PING")).await
            && is_fatal(&error)
        {
            return;
        }
    }
}
