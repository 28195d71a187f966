//! The shape of every task that a node runs by itself, and its supervision.
//!
//! A [`Duty`] has a name, a scope, a trigger and a function. The function waits for its trigger by [`DutyRun`] and does
//! one pass each time, whose duration is measured there. All duties are in [one table](super::duties).
//!
//! | scope | runs | a panic, or an error that it returns |
//! | --- | --- | --- |
//! | node | until the node stops | restarts it, after a pause that grows |
//! | competing | until the node leaves the competition for runs | restarts it, after a pause that grows |
//! | leader | for one term | ends the term |
//!
//! Both are counted. Most errors are neither: a pass that fails because a backend is unavailable is logged, and retried
//! by the duty itself. A duty that returns without an error has nothing to do on this node.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use convoke_core::history::Record;
use convoke_core::mutant::mutant;
use convoke_core::shards::coordinator::Rebalanced;
use convoke_core::{Error, Result};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use metrics::Histogram;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{error, warn};

use super::feed::{Feed, Received};
use super::leader::LeaderState;
use super::node::{Node, NodeBase};
use super::{history, telemetry};
use crate::election::{EventSink, Term};
use crate::shards::RecordSink;

/// The pause before a failed duty starts again, at first and at most.
const RESTART_AFTER: Duration = Duration::from_millis(100);
const RESTART_AFTER_MAX: Duration = Duration::from_secs(30);

/// Which nodes run a duty, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// Every node, until it stops.
    Node,
    /// Every node, until it leaves the competition for runs.
    Competing,
    /// The leader, for one term.
    Leader,
}

impl Scope {
    /// Returns the name of the scope as the documents and metrics have it.
    pub fn as_str(self) -> &'static str {
        match self {
            Scope::Node => "node",
            Scope::Competing => "competing",
            Scope::Leader => "leader",
        }
    }
}

/// The trigger of a duty's passes.
pub trait Trigger: Clone + Send + Sync + 'static {
    /// Returns the trigger as the documents have it.
    fn text(&self) -> String;
}

/// Passes by the clock.
#[derive(Clone)]
pub struct Every {
    pub text: &'static str,
    pub interval: fn(&NodeBase) -> Duration,
}

/// Messages of topics, named without the prefix, and perhaps another trigger.
#[derive(Clone)]
pub struct SubscribedTo {
    pub topics: &'static [&'static str],
    pub also: &'static str,
}

/// Entries of a queue for which all nodes compete, named without the prefix.
#[derive(Clone)]
pub struct Consumes(pub &'static str);

/// A signal within this process.
#[derive(Clone)]
pub struct WokenBy(pub &'static str);

impl Trigger for Every {
    fn text(&self) -> String {
        self.text.to_owned()
    }
}

impl Trigger for SubscribedTo {
    fn text(&self) -> String {
        let topics = self.topics.iter().map(|topic| format!("`{topic}`"));
        let also = Some(self.also.to_owned()).filter(|also| !also.is_empty());
        topics.chain(also).collect::<Vec<_>>().join(", ")
    }
}

impl Trigger for Consumes {
    fn text(&self) -> String {
        format!("`{}`", self.0)
    }
}

impl Trigger for WokenBy {
    fn text(&self) -> String {
        self.0.to_owned()
    }
}

/// A task that a node runs by itself.
pub struct Duty {
    /// The name in logs, metrics and documents.
    pub name: &'static str,
    /// The trigger, as the documents have it.
    pub trigger: String,
    /// The purpose of the duty, as the documents have it.
    pub does: &'static str,
    /// The consequence of a failure, as the documents have it.
    pub if_it_fails: &'static str,
    start: Start,
}

type Starter<C> = Box<dyn Fn(C) -> BoxFuture<'static, Result<()>> + Send + Sync>;

enum Start {
    Node(Starter<(Arc<Node>, Stop)>),
    Competing(Starter<(Arc<Node>, Stop)>),
    Leader(Starter<Arc<LeaderState>>),
}

impl Duty {
    /// Creates a duty of the leader that has nothing to do with jobs. `run` ends when the term does.
    pub fn of_leader<F: Future<Output = ()> + Send + 'static>(
        name: &'static str,
        trigger: &'static str,
        does: &'static str,
        run: impl Fn(Term, EventSink, RecordSink) -> F + Send + Sync + 'static,
    ) -> Self {
        let start: Starter<Arc<LeaderState>> = Box::new(move |leader| {
            let (events, node) = (leader.node.events.clone(), leader.node.base.clone());
            let record: RecordSink = Arc::new(move |rebalanced: Rebalanced| {
                let now = node.now();
                node.history.record(Record::Rebalance(rebalanced.at(now, node.id.clone())), now);
            });
            let running = run(leader.term.clone(), Arc::new(move |what| events.publish(what)), record);
            Box::pin(running.map(Ok))
        });
        let (trigger, if_it_fails) = (trigger.to_owned(), "the term ends");
        Duty { name, trigger, does, if_it_fails, start: Start::Leader(start) }
    }

    pub(super) fn node<T: Trigger, F: Future<Output = Result<()>> + Send + 'static>(
        name: &'static str,
        trigger: T,
        run: fn(Arc<Node>, DutyRun<T>) -> F,
        does: &'static str,
        if_it_fails: &'static str,
    ) -> Self {
        let text = trigger.text();
        Duty { name, trigger: text, does, if_it_fails, start: Start::Node(on_node(name, trigger, run)) }
    }

    pub(super) fn competing<T: Trigger, F: Future<Output = Result<()>> + Send + 'static>(
        name: &'static str,
        trigger: T,
        run: fn(Arc<Node>, DutyRun<T>) -> F,
        does: &'static str,
        if_it_fails: &'static str,
    ) -> Self {
        let text = trigger.text();
        Duty { name, trigger: text, does, if_it_fails, start: Start::Competing(on_node(name, trigger, run)) }
    }

    pub(super) fn leader<T: Trigger, F: Future<Output = Result<()>> + Send + 'static>(
        name: &'static str,
        trigger: T,
        run: fn(Arc<LeaderState>, DutyRun<T>) -> F,
        does: &'static str,
        if_it_fails: &'static str,
    ) -> Self {
        let text = trigger.text();
        let start: Starter<Arc<LeaderState>> = Box::new(move |leader| {
            let stop = Stop::Term(leader.term.clone());
            let context = DutyRun::new(name, trigger.clone(), leader.node.base.clone(), stop);
            Box::pin(run(leader, context))
        });
        Duty { name, trigger: text, does, if_it_fails, start: Start::Leader(start) }
    }

    /// Returns the scope, which decides when the duty starts and ends.
    pub fn scope(&self) -> Scope {
        match self.start {
            Start::Node(_) => Scope::Node,
            Start::Competing(_) => Scope::Competing,
            Start::Leader(_) => Scope::Leader,
        }
    }

    /// Runs a duty of every node until `stop`, and restarts it whenever it fails. Does nothing for a duty of the
    /// leader.
    pub(super) async fn keep_running(&self, node: Arc<Node>, stop: CancellationToken) {
        let (Start::Node(start) | Start::Competing(start)) = &self.start else { return };
        let mut pause = RESTART_AFTER;
        loop {
            let began = tokio::time::Instant::now();
            let running = || start((node.clone(), Stop::Token(stop.clone())));
            let Err(failure) = catch(running).await else { return };
            telemetry::duty_failed(self.name);
            if began.elapsed() > RESTART_AFTER_MAX {
                pause = RESTART_AFTER;
            }
            let restart_in_ms = pause.as_millis() as u64;
            error!(task = self.name, error = failure, restart_in_ms, "task failed: it starts again");
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = tokio::time::sleep(pause) => {}
            }
            pause = (pause * 2).min(RESTART_AFTER_MAX);
        }
    }

    /// Runs a duty of the leader for its term, which ends if the duty fails. Does nothing for a duty of every node.
    ///
    /// A pass that has begun may finish after the term was ended early. It is dropped where it waits once the time of the
    /// lease is up: a slow store must not keep a leader at work while the next one begins.
    pub(super) async fn lead(&self, leader: Arc<LeaderState>) {
        let Start::Leader(start) = &self.start else { return };
        let ended = tokio::select! {
            biased;
            () = leader.term.expired(), if !mutant("work ends with the lease") => return,
            ended = catch(|| start(leader.clone())) => ended,
        };
        if let Err(failure) = ended {
            telemetry::duty_failed(self.name);
            // A leader without one of its duties must not keep the lease.
            error!(task = self.name, error = failure, "leader task failed: the term ends");
            leader.term.end();
        }
    }
}

fn on_node<T: Trigger, F: Future<Output = Result<()>> + Send + 'static>(
    name: &'static str,
    trigger: T,
    run: fn(Arc<Node>, DutyRun<T>) -> F,
) -> Starter<(Arc<Node>, Stop)> {
    Box::new(move |(node, stop)| {
        let context = DutyRun::new(name, trigger.clone(), node.base.clone(), stop);
        Box::pin(run(node, context))
    })
}

/// Runs a duty to its end. Returns its error, or the message of its panic.
async fn catch(start: impl FnOnce() -> BoxFuture<'static, Result<()>>) -> Result<(), String> {
    match AssertUnwindSafe(async { start().await }).catch_unwind().await {
        Ok(result) => result.map_err(|error| error.to_string()),
        Err(panic) => Err(format!("panicked: {}", panic_text(&*panic))),
    }
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

/// When a duty ends.
#[derive(Clone)]
pub enum Stop {
    Token(CancellationToken),
    Either(CancellationToken, CancellationToken),
    Term(Term),
}

impl Stop {
    pub fn is_due(&self) -> bool {
        match self {
            Stop::Token(token) => token.is_cancelled(),
            Stop::Either(one, other) => one.is_cancelled() || other.is_cancelled(),
            Stop::Term(term) => term.is_over(),
        }
    }

    pub async fn due(&self) {
        match self {
            Stop::Token(token) => token.cancelled().await,
            Stop::Either(one, other) => tokio::select! {
                biased;
                () = one.cancelled() => {}
                () = other.cancelled() => {}
            },
            Stop::Term(term) => term.ended().await,
        }
    }
}

/// A running duty: it waits here for its next pass, and learns here when to stop.
pub struct DutyRun<T> {
    pub name: &'static str,
    trigger: T,
    node: Arc<NodeBase>,
    stop: Stop,
    seconds: Histogram,
    /// When the present pass began.
    pass: Option<Instant>,
}

impl<T: Trigger> DutyRun<T> {
    fn new(name: &'static str, trigger: T, node: Arc<NodeBase>, stop: Stop) -> Self {
        DutyRun { name, trigger, node, stop, seconds: telemetry::duty_seconds(name), pass: None }
    }

    pub fn node(&self) -> &Arc<NodeBase> {
        &self.node
    }

    pub fn stop(&self) -> Stop {
        self.stop.clone()
    }

    pub fn must_stop(&self) -> bool {
        self.stop.is_due()
    }

    /// Ends the duty as soon as `token` is cancelled, too.
    pub fn until(mut self, token: CancellationToken) -> Self {
        if let Stop::Token(stop) = self.stop {
            self.stop = Stop::Either(stop, token);
        }
        self
    }

    /// Waits for the trigger of the next pass. Returns `None` once the duty must stop. A pass lasts from the return of
    /// this until the next call.
    pub async fn wait<W>(&mut self, wake: impl Future<Output = W>) -> Option<W> {
        if let Some(began) = self.pass.take() {
            self.seconds.record(began.elapsed().as_secs_f64());
        }
        let woken = tokio::select! {
            biased;
            () = self.stop.due() => return None,
            woken = wake => woken,
        };
        self.pass = Some(Instant::now());
        (!self.stop.is_due()).then_some(woken)
    }

    /// Waits for this long. Returns false once the duty must stop.
    pub async fn sleep(&mut self, pause: Duration) -> bool {
        self.wait(tokio::time::sleep(pause)).await.is_some()
    }

    /// Logs a failure that the duty retries. A fenced write ends the term instead.
    pub fn failed(&self, what: &'static str, error: &Error) {
        if let Stop::Term(term) = &self.stop
            && telemetry::is_fenced(error)
        {
            history::record_fenced(&self.node, term.epoch(), error);
            warn!(task = what, epoch = term.fence().epoch().0, "write rejected: another node leads");
            term.end();
        } else {
            self.node.outages.failed(what, error);
        }
    }
}

impl DutyRun<Every> {
    /// Waits for the next pass. Returns false once the duty must stop.
    pub async fn next(&mut self) -> bool {
        let (interval, mut run_now) = (self.interval(), self.node.run_now.subscribe());
        let wake = async {
            // Fails only if the node is gone.
            let _ = tokio::time::timeout(interval, run_now.changed()).await;
        };
        self.wait(wake).await.is_some()
    }

    pub fn interval(&self) -> Duration {
        (self.trigger.interval)(&self.node)
    }
}

impl DutyRun<SubscribedTo> {
    /// Subscribes to the duty's topics. `task` names it in the log.
    pub fn feed(&self, task: &'static str) -> Feed {
        let topics = self.trigger.topics.iter().map(|topic| self.node.channels.named(topic));
        Feed::new(self.node.clone(), topics.collect(), task)
    }

    /// Waits for the next item of the feed. Returns `None` once the duty must stop.
    pub async fn next(&mut self, feed: &mut Feed) -> Option<Received> {
        self.wait(feed.next()).await
    }
}

impl DutyRun<Consumes> {
    pub fn queue(&self) -> String {
        self.node.channels.named(self.trigger.0)
    }
}

#[cfg(test)]
mod tests;
