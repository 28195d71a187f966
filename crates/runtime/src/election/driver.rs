//! The one loop that holds leases: sends the requests of the rules to the leases, and passes the replies to the rules.
//!
//! It serves every holder: an application's [`Elector`](super::Elector), the coordinator's
//! [`Campaign`](super::Campaign) and the leader of a mesh. They differ in their
//! [`Conduct`](convoke_core::election::Conduct), by which the rules decide, and in their [`Office`], which uses the
//! term.
//!
//! It never gives up: a failed request is retried at the pace that the rules set. It stops cleanly: the work of the
//! term is over before another member may lead.

use std::sync::Arc;
use std::time::Duration;

use convoke_core::election::{Ask, Reply, Report, Round};
use convoke_core::mutant::mutant;
use convoke_core::{Error, Result, duration};
use tokio::time::Instant;
use tokio_util::sync::DropGuard;
use tracing::{debug, info, warn};

use super::holder::Holder;
use super::office::Office;
use super::telemetry;
use super::tenure::Tenure;
use crate::machine;

/// How long resigning and withdrawing may take, if the lease lasts longer.
const FAREWELL_MAX: Duration = Duration::from_secs(2);
/// How long a report may delay the next heartbeat.
const REPORT_PATIENCE: Duration = Duration::from_millis(500);
/// How long a follower waits at most before it reads a lease that was resigned, for each member that was notified too.
/// The first of them reads it after about this long, however many there are.
const SPREAD_PER_MEMBER: Duration = Duration::from_millis(1);
/// The shortest spread: members of a cluster of nodes are not listed.
const SPREAD_MIN: Duration = Duration::from_millis(4);
const SPREAD_MAX: Duration = Duration::from_millis(50);
/// The shortest time between two reads after notices: whoever can publish notices cannot make members read without end.
const NOTICE_INTERVAL_MIN: Duration = Duration::from_millis(20);

/// Runs until `stop`. `_left` signals the end to waiting tasks, even if the loop never begins.
pub(crate) async fn drive(holder: Arc<Holder>, office: Arc<dyn Office>, _left: DropGuard) {
    let driver = Driver { holder: &holder, office: &*office };
    driver.run().await;
    driver.leave().await;
    office.close();
    holder.forget();
}

struct Driver<'a> {
    holder: &'a Holder,
    office: &'a dyn Office,
}

impl Driver<'_> {
    async fn run(&self) {
        let holder = self.holder;
        let mut fit = holder.fit.clone();
        holder.rules.lock().set_fit(*fit.borrow_and_update());
        let mut resignations = holder.leases.watch_resignations(&holder.namespace);
        let mut noticed = None;
        while !holder.stop.is_cancelled() {
            let (due, round) = holder.rules.lock().due(holder.moment());
            let term = holder.term.borrow().clone();
            let overstays = || holder.term.borrow().as_ref().is_some_and(Tenure::overstays);
            let given_up = async {
                match &term {
                    Some(term) => term.given_up().await,
                    None => std::future::pending().await,
                }
            };
            let round = tokio::select! {
                biased;
                () = holder.stop.cancelled() => return,
                () = given_up => {
                    self.leave().await;
                    continue;
                }
                Ok(()) = fit.changed() => {
                    let is_fit = *fit.borrow_and_update();
                    holder.rules.lock().set_fit(is_fit);
                    if !is_fit && let Some(term) = &term {
                        warn!(epoch = term.epoch().0, "resigning: the bus or the store cannot be reached");
                        self.leave().await;
                        continue;
                    }
                    Round::LeaseCheck
                }
                // Before the notices: those that come without end must not keep it from its heartbeats.
                () = tokio::time::sleep_until(holder.instant(due)), if !overstays() => round,
                () = holder.vacancy.notified() => {
                    self.spread_out(&mut noticed).await;
                    Round::LeaseCheck
                }
                () = resignations.next(), if term.is_none() => {
                    self.spread_out(&mut noticed).await;
                    Round::LeaseCheck
                }
            };
            if overstays() {
                continue;
            }
            self.converse(round).await;
            if holder.rules.lock().should_yield() {
                info!(namespace = holder.namespace, "resigning: members of another system are present");
                self.leave().await;
            }
        }
    }

    /// Waits for a random time, since the other candidates were notified too.
    async fn spread_out(&self, noticed: &mut Option<Instant>) {
        let members = self.holder.rules.lock().members(self.holder.moment()).len();
        let members = u32::try_from(members).unwrap_or(u32::MAX);
        let spread = SPREAD_PER_MEMBER.saturating_mul(members).clamp(SPREAD_MIN, SPREAD_MAX);
        let soonest = noticed.map_or(Duration::ZERO, |last| NOTICE_INTERVAL_MIN.saturating_sub(last.elapsed()));
        tokio::time::sleep(spread.mul_f64(machine::fraction()).max(soonest)).await;
        *noticed = Some(Instant::now());
    }

    async fn converse(&self, round: Round) {
        let holder = self.holder;
        let started = holder.moment();
        let (mut next, over) = {
            let mut rules = holder.rules.lock();
            let first = rules.begin(round, holder.now());
            (first, holder.publish(&mut rules, self.office))
        };
        self.wind_up(over).await;
        while let Some(ask) = next {
            let asked = holder.moment();
            let answer = self.put(&ask).await;
            let over = {
                let mut rules = holder.rules.lock();
                let asked = if mutant("renewal counted from before the request") { holder.moment() } else { asked };
                next = rules.on_reply(answer, asked, holder.now());
                if holder.stop.is_cancelled() {
                    next = next.filter(|next| is_owed(rules.me(), &ask, next));
                }
                holder.publish(&mut rules, self.office)
            };
            self.wind_up(over).await;
        }
        {
            let mut rules = holder.rules.lock();
            if round == Round::Heartbeat {
                rules.plan(started, holder.moment(), machine::fraction());
            }
            telemetry::publish_gauges(&holder.namespace, &rules);
        }
        if round == Round::Heartbeat {
            self.report().await;
        }
    }

    /// Waits until nothing acts on a term that is over, before the next request.
    async fn wind_up(&self, mut over: Option<Tenure>) {
        while let Some(term) = over {
            self.office.end(&term).await;
            over = self.holder.publish(&mut self.holder.rules.lock(), self.office);
        }
    }

    /// Publishes the leader's report about itself, if the backend carries it. Nothing depends on it: a failure is left
    /// to the next heartbeat.
    async fn report(&self) {
        let holder = self.holder;
        if !holder.leases.carries_reports() || holder.stop.is_cancelled() {
            return;
        }
        let report = {
            let rules = holder.rules.lock();
            let Some(held) = rules.term().filter(|_| rules.conduct().enrols) else { return };
            let (metrics, breaker) = (rules.metrics(), rules.breaker());
            Report { member: rules.me().to_owned(), epoch: held.epoch, at: holder.clock.now(), metrics, breaker }
        };
        let text = serde_json::to_string(&report).expect("a report has nothing that JSON lacks");
        let published = tokio::time::timeout(REPORT_PATIENCE, holder.leases.publish(&holder.namespace, &text));
        if !matches!(published.await, Ok(Ok(()))) {
            debug!(namespace = holder.namespace, "publishing the leader's report failed");
        }
    }

    /// Sends one request and waits for the reply until its timeout.
    async fn put(&self, ask: &Ask) -> Reply {
        let holder = self.holder;
        let patience = holder.rules.lock().patience(ask, holder.moment());
        let leaving = async {
            holder.stop.cancelled().await;
            // Wait for the reply of a pending election: else the lease may be granted and expire unused.
            if matches!(ask, Ask::Elect { .. } | Ask::Resign { .. }) {
                tokio::time::sleep(FAREWELL_MAX).await;
            }
        };
        tokio::select! {
            biased;
            answer = self.answer(ask) => answer,
            () = leaving => Reply::Failed,
            () = tokio::time::sleep(patience) => {
                let message = format!("no response within {}", duration::format(patience));
                let is_seal = matches!(ask, Ask::Seal { .. });
                let backend = if is_seal { "store" } else { "leases" };
                if !is_seal {
                    holder.responded(false);
                }
                holder.outages.failed(ask.name(), &Error::unavailable(backend, message));
                Reply::Failed
            }
        }
    }

    async fn answer(&self, ask: &Ask) -> Reply {
        match self.try_answer(ask).await {
            Ok(answer) => answer,
            Err(Error::Conflict(_)) if matches!(ask, Ask::Elect { .. }) => Reply::Refused,
            Err(Error::Fenced { .. }) if matches!(ask, Ask::Renew { .. }) => Reply::Refused,
            Err(error) => {
                self.holder.outages.failed(ask.name(), &error);
                Reply::Failed
            }
        }
    }

    async fn try_answer(&self, ask: &Ask) -> Result<Reply> {
        let (me, lease, member) = {
            let rules = self.holder.rules.lock();
            (rules.me().to_owned(), rules.settings().lease_timeout, rules.enrolment())
        };
        let (leases, namespace) = (&self.holder.leases, self.holder.namespace.as_str());
        Ok(match ask {
            Ask::Read => Reply::Read(self.request(leases.read(namespace)).await?),
            Ask::Enroll => self.request(leases.enroll(namespace, &me, member)).await.map(|()| Reply::Done)?,
            Ask::Roster => Reply::Roster(self.request(leases.roster(namespace)).await?),
            Ask::Elect { floor } => {
                let floor = self.office.floor(*floor).await?;
                Reply::Granted(self.request(leases.elect(namespace, &me, lease, floor)).await?)
            }
            Ask::Renew { epoch } => Reply::Granted(self.request(leases.renew(namespace, &me, *epoch, lease)).await?),
            Ask::Seal { epoch } => self.office.seal(*epoch).await.map(|()| Reply::Done)?,
            Ask::Withdraw => self.request(leases.withdraw(namespace, &me)).await.map(|()| Reply::Done)?,
            Ask::Resign { holder, epoch } => {
                self.request(leases.resign(namespace, holder, *epoch)).await.map(|()| Reply::Done)?
            }
        })
    }

    /// Sends a request to the leases. Records whether they responded; a rejection is a response.
    async fn request<T>(&self, sent: impl Future<Output = Result<T>>) -> Result<T> {
        let response = sent.await;
        let is_rejected = matches!(response, Err(Error::Conflict(_) | Error::Fenced { .. }));
        self.holder.responded(response.is_ok() || is_rejected);
        response
    }

    /// Resigns and withdraws, once nothing acts on the term.
    async fn leave(&self) {
        let holder = self.holder;
        let term = holder.term.borrow().clone();
        if let Some(term) = term {
            term.end();
            term.quiet().await;
        }
        let (asks, patience, over) = {
            let mut rules = holder.rules.lock();
            let asks = rules.step_down(holder.now());
            let over = holder.publish(&mut rules, self.office);
            telemetry::publish_gauges(&holder.namespace, &rules);
            (asks, rules.settings().lease_timeout.min(FAREWELL_MAX), over)
        };
        self.wind_up(over).await;
        let farewells = asks.iter().map(|ask| tokio::time::timeout(patience, self.answer(ask)));
        for farewell in futures_util::future::join_all(farewells).await {
            if farewell != Ok(Reply::Done) {
                debug!(namespace = holder.namespace, "resigning or withdrawing failed: lease and enrolment expire");
            }
        }
    }
}

/// Returns whether a holder that leaves still sends this request: it resigns a term that it was just granted. If it has
/// ended the term of another member, which may not know that yet, it takes the lease, so that nobody leads before that
/// lease would have expired; but it does not start to end such a term.
fn is_owed(me: &str, before: &Ask, next: &Ask) -> bool {
    match (before, next) {
        (_, Ask::Resign { holder, .. }) => holder == me,
        (Ask::Resign { .. }, Ask::Elect { .. }) => true,
        _ => false,
    }
}
