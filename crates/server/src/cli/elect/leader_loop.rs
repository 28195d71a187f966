//! One term of leadership, in which a command runs.
//!
//! The command runs under a guard that ends it in time on its own. This loop moves the guard's deadline when the lease
//! is renewed, passes signals on, and distinguishes how the command ended: by itself, on request, or because the lead
//! was lost. The term is released only after all processes of the command have ended, even if the guard was killed.

use std::ffi::OsString;
use std::time::Duration;

use anyhow::{Context as _, Result};
use convoke::election::Term;
use tokio::time::{Instant, MissedTickBehavior};
use tracing::{info, warn};

use super::lease_deadline::lease_deadline;
use super::signals::Signals;
use crate::cli::supervise::{ChildTree, Deadline, Ending, GuardEvent, GuardLink, GuardOptions, Moment, Order};

/// How often renewals are checked for within the time of a lease.
const CHECKS_A_LEASE: u32 = 20;
const CHECK_INTERVAL_MIN: Duration = Duration::from_millis(5);
const CHECK_INTERVAL_MAX: Duration = Duration::from_secs(1);

/// The command that runs for as long as a term lasts.
pub struct LeaderCommand {
    pub namespace: String,
    pub command: Vec<OsString>,
    pub ttl: Duration,
    pub grace: Duration,
}

/// How a term's command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It ended by itself.
    Ended(Ending),
    /// This process was asked to stop, and asked the command to.
    Stopped(Ending),
    /// The lead was lost, or may have been.
    Lost,
}

/// Runs the command until it ends or must end.
pub async fn run_term(
    term: &Term,
    command: &LeaderCommand,
    signals: &mut Signals,
    tree: &mut ChildTree,
) -> Result<Outcome> {
    // While this value exists the term is not released.
    let _at_work = term.guard();
    let mut guarded = GuardedTerm::start(term, command)?;
    let outcome = tokio::select! {
        outcome = guarded.watch(signals) => outcome,
        never = tree.reap_forever() => match never {},
    };
    if outcome.is_err() {
        // The processes of a guard that was killed are children of this process now.
        tree.kill_all().await;
    }
    outcome
}

/// A term and the guard of its command.
struct GuardedTerm<'a> {
    term: &'a Term,
    command: &'a LeaderCommand,
    guard: GuardLink,
    /// The end of the lease from which the guard's deadline was computed.
    known_until: Instant,
}

impl<'a> GuardedTerm<'a> {
    fn start(term: &'a Term, command: &'a LeaderCommand) -> Result<Self> {
        let LeaderCommand { command: words, grace, .. } = command;
        let guard = GuardLink::start(&GuardOptions { command: words, grace: *grace, without: &[], bound: true });
        let guard = guard.context("cannot start the guard of the command")?;
        let mut guarded = GuardedTerm { term, command, guard, known_until: Instant::now() };
        let (known_until, deadline) = guarded.deadline();
        let epoch = ("CONVOKE_EPOCH".to_owned(), term.epoch().to_string());
        let namespace = ("CONVOKE_NAMESPACE".to_owned(), command.namespace.clone());
        guarded.guard.send(&Order::Start { env: vec![epoch, namespace], deadline: Some(deadline) });
        guarded.known_until = known_until;
        Ok(guarded)
    }

    async fn watch(&mut self, signals: &mut Signals) -> Result<Outcome> {
        let mut checks =
            tokio::time::interval((self.command.ttl / CHECKS_A_LEASE).clamp(CHECK_INTERVAL_MIN, CHECK_INTERVAL_MAX));
        checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let epoch = self.term.epoch();
        let (mut is_lost, mut kill_at) = (false, None);
        loop {
            tokio::select! {
                event = self.guard.next() => match event {
                    Some(GuardEvent::Started { .. }) => {}
                    Some(GuardEvent::NotStarted(error)) => anyhow::bail!("cannot start the command: {error}"),
                    Some(GuardEvent::Stopping) => {
                        info!(%epoch, "lease may be lost: sent SIGTERM to the command");
                        is_lost = true;
                    }
                    Some(GuardEvent::Ended(ending)) => return Ok(match (is_lost, kill_at) {
                        // A process that was asked to end does not contend again, whether the lead was lost or not.
                        (_, Some(_)) => Outcome::Stopped(ending),
                        (true, None) => Outcome::Lost,
                        (false, None) => Outcome::Ended(ending),
                    }),
                    None => {
                        self.guard.kill();
                        anyhow::bail!("the guard of the command was killed, and the command with it");
                    }
                },
                () = self.term.ended(), if !is_lost => {
                    // Another process may lead already, so there is no time for SIGTERM.
                    warn!(%epoch, "lead lost: killing the command");
                    is_lost = true;
                    self.guard.kill();
                }
                signal = signals.next() => {
                    self.guard.send(&Order::Signal(signal.as_raw()));
                    if signals.ends(signal) && kill_at.is_none() {
                        kill_at = Some(Instant::now() + self.command.grace);
                    }
                }
                () = sleep_until(kill_at) => {
                    warn!("command did not end within the grace period: killing it");
                    self.guard.kill();
                    kill_at = Some(Instant::now() + self.command.grace);
                }
                _ = checks.tick() => self.move_deadline(),
            }
        }
    }

    /// Sends a renewal to the guard.
    fn move_deadline(&mut self) {
        let (until, deadline) = self.deadline();
        // An order that could not be sent is retried at the next check. Until then the guard keeps its deadline.
        if until != self.known_until && !self.term.is_over() && self.guard.send(&Order::SetDeadline(deadline)) {
            self.known_until = until;
        }
    }

    fn deadline(&self) -> (Instant, Deadline) {
        let until = self.term.certain_until();
        // In this order: a pause between the two shortens the remaining time.
        let now = Moment::now();
        let left = until.saturating_duration_since(Instant::now());
        (until, lease_deadline(now, left, self.command.ttl, self.command.grace))
    }
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}
