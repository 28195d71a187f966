//! One term of leadership, spent on running a command.
//!
//! The command runs under a guard that ends it in time by itself; here the guard's deadline is moved on as the lease is
//! renewed, signals are passed on, and the end is understood: by itself, on request, or because the lead was lost. The term is
//! not given back before nothing of the command runs any more, also where the guard was killed and could not see to it.

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result};
use convoke::election::Term;
use convoke_core::duration;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::net::UnixStream;
use tokio::time::{Instant, MissedTickBehavior};
use tracing::{info, warn};

use super::brood::Brood;
use super::guard;
use super::leash::{Ending, Hold, Moment, Order, Word, line_of};
use super::signals::Signals;

/// Renewals are looked for this many times in the time of a lease.
const LOOKS_A_LEASE: u32 = 20;
const LOOK_MIN: Duration = Duration::from_millis(5);
const LOOK_MAX: Duration = Duration::from_secs(1);

/// What is run for as long as a term lasts.
pub struct Errand {
    pub namespace: String,
    pub command: Vec<OsString>,
    pub ttl: Duration,
    pub grace: Duration,
}

/// How a term's command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// By itself.
    Ended(Ending),
    /// After it was asked to, because we were.
    Stopped(Ending),
    /// The lead was lost, or may have been.
    Lost,
}

/// Runs the command until it ends or must.
pub async fn reign(term: &Term, errand: &Errand, signals: &mut Signals, brood: &mut Brood) -> Result<Outcome> {
    // While this is kept the term is not given back.
    let _at_work = term.guard();
    let mut guarded = Guarded::start(term, errand)?;
    let outcome = tokio::select! {
        outcome = guarded.attend(term, errand, signals) => outcome,
        never = brood.tend() => match never {},
    };
    if outcome.is_err() {
        // What was the guard's is ours now.
        brood.end().await;
    }
    outcome
}

/// A guard, and what is known of its command.
struct Guarded {
    orders: StdUnixStream,
    words: Lines<BufReader<UnixStream>>,
    group: Option<Pid>,
    /// Up to when the guard knows that the lease is certain.
    told: Instant,
}

impl Guarded {
    fn start(term: &Term, errand: &Errand) -> Result<Guarded> {
        let (ours, theirs) = StdUnixStream::pair()?;
        let mut command = Command::new(guard::myself()?);
        command.arg0("convoke").arg(guard::NAME).args(["--grace", &duration::format(errand.grace), "--"]);
        command.args(&errand.command);
        command.env("CONVOKE_EPOCH", term.epoch().to_string()).env("CONVOKE_NAMESPACE", &errand.namespace);
        command.stdin(Stdio::from(OwnedFd::from(theirs))).process_group(0);
        // Its end is heard of by the socket, and it is buried with whoever else ends.
        drop(command.spawn().context("the command's guard cannot be started")?);
        // The command keeps its own copy of the socket, which would hide the guard's end.
        drop(command);
        ours.set_nonblocking(true)?;
        let orders = ours.try_clone()?;
        let words = BufReader::new(UnixStream::from_std(ours)?).lines();
        let mut guarded = Guarded { orders, words, group: None, told: Instant::now() };
        guarded.prolong(term, errand);
        Ok(guarded)
    }

    async fn attend(&mut self, term: &Term, errand: &Errand, signals: &mut Signals) -> Result<Outcome> {
        let mut looks = tokio::time::interval((errand.ttl / LOOKS_A_LEASE).clamp(LOOK_MIN, LOOK_MAX));
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut is_lost, mut kill_at) = (false, None);
        loop {
            tokio::select! {
                word = self.words.next_line() => match word.ok().flatten().map(|line| serde_json::from_str(&line)) {
                    Some(Ok(Word::Started { pid })) => self.group = Pid::from_raw(pid),
                    Some(Ok(Word::Stopping)) => {
                        info!(epoch = %term.epoch(), "the lease may be lost: the command was told to end");
                        is_lost = true;
                    }
                    Some(Ok(Word::Ended(ending))) => return Ok(match (is_lost, kill_at) {
                        // Whoever wants us to end does not want us to contend again, lost or not.
                        (_, Some(_)) => Outcome::Stopped(ending),
                        (true, None) => Outcome::Lost,
                        (false, None) => Outcome::Ended(ending),
                    }),
                    Some(Err(_)) | None => {
                        self.kill();
                        anyhow::bail!("the command's guard was killed, and the command with it");
                    }
                },
                () = term.ended(), if !is_lost => {
                    // Another may lead already: there is no time for farewells.
                    warn!(epoch = %term.epoch(), "the lead is lost");
                    is_lost = true;
                    self.kill();
                }
                signal = signals.next() => {
                    self.order(Order::Signal(signal.as_raw()));
                    if signals.ends(signal) && kill_at.is_none() {
                        kill_at = Some(Instant::now() + errand.grace);
                    }
                }
                () = sleep_until(kill_at) => {
                    warn!("the command does not end: it is killed");
                    self.kill();
                    kill_at = Some(Instant::now() + errand.grace);
                }
                _ = looks.tick() => self.prolong(term, errand),
            }
        }
    }

    /// Has the guard know of a renewal.
    fn prolong(&mut self, term: &Term, errand: &Errand) {
        let until = term.certain_until();
        if until != self.told && !term.is_over() {
            // In this order: a pause between the two shortens what is left.
            let now = Moment::now();
            let left = until.saturating_duration_since(Instant::now());
            if self.order(Order::Hold(Hold::of(now, left, errand.ttl, errand.grace))) {
                self.told = until;
            }
        }
    }

    /// Whether it was sent. It never waits: a guard that does not listen must not keep us from renewing.
    fn order(&mut self, order: Order) -> bool {
        let line = line_of(&order);
        match self.orders.write(&line) {
            Ok(written) if written == line.len() => return true,
            // Its deadline stays, and at the end of the term the group is killed from here.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            // Half an order cannot be taken back; one that has died is heard of by its silence.
            Ok(_) | Err(_) => self.kill_group(),
        }
        false
    }

    fn kill(&mut self) {
        self.kill_group();
        self.order(Order::Kill);
    }

    fn kill_group(&self) {
        if let Some(group) = self.group {
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}
