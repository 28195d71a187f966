//! The one loop of an elector: puts the rules' questions to the leases, and their answers to the rules.
//!
//! It never gives up: what fails is tried again at the pace that the rules set. Its end is a clean one: the term's work is
//! over before another may lead.

use std::sync::Arc;
use std::time::Duration;

use convoke_core::election::{Ask, Reply, Report, Round};
use convoke_core::ports::leases::Floor;
use convoke_core::{Error, Result, duration};
use tokio_util::sync::DropGuard;
use tracing::{debug, info};

use super::elector::Shared;
use super::telemetry;

/// For how long a farewell may take, where the lease lasts longer.
const FAREWELL_MAX: Duration = Duration::from_secs(2);
/// For how long a report may keep the next beat waiting.
const REPORT_PATIENCE: Duration = Duration::from_millis(500);

/// Runs until it is told to stop. However it ends, also where it never begins, `_left` tells those who wait for that.
pub(super) async fn run_heartbeats(shared: Arc<Shared>, _left: DropGuard) {
    while !shared.stop.is_cancelled() {
        let (due, round) = shared.rules.lock().due(shared.moment());
        let term = shared.term.borrow().clone();
        let given_up = async {
            match &term {
                Some(term) => term.given_up().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = shared.stop.cancelled() => break,
            () = given_up => {
                leave(&shared).await;
                continue;
            }
            () = tokio::time::sleep_until(shared.instant(due)) => {}
        }
        converse(&shared, round).await;
        if shared.rules.lock().should_yield() {
            info!(namespace = shared.namespace, "resigning: members of another system are present");
            leave(&shared).await;
        }
    }
    leave(&shared).await;
    shared.fall_silent();
    telemetry::forget(&shared.namespace);
}

async fn converse(shared: &Shared, round: Round) {
    let started = shared.moment();
    let mut next = {
        let mut rules = shared.rules.lock();
        let first = rules.begin(round, shared.now());
        shared.publish(&mut rules);
        first
    };
    while let Some(ask) = next {
        let asked = shared.moment();
        let answer = put(shared, &ask).await;
        let mut rules = shared.rules.lock();
        next = rules.on_reply(answer, asked, shared.now());
        shared.publish(&mut rules);
        if shared.stop.is_cancelled() {
            next = next.filter(|next| is_owed(rules.me(), &ask, next));
        }
    }
    {
        let mut rules = shared.rules.lock();
        if round == Round::Heartbeat {
            rules.plan(started, shared.moment(), rand::random());
        }
        telemetry::publish_gauges(&shared.namespace, &rules);
    }
    if round == Round::Heartbeat {
        publish(shared).await;
    }
}

/// Publishes what a leader tells of itself, if the backend carries it. Nothing depends on it: a failure is left to the next beat.
async fn publish(shared: &Shared) {
    if !shared.leases.carries_reports() || shared.stop.is_cancelled() {
        return;
    }
    let report = {
        let rules = shared.rules.lock();
        let Some(held) = rules.term() else { return };
        let (metrics, breaker) = (rules.metrics(), rules.breaker());
        Report { member: rules.me().to_owned(), epoch: held.epoch, at: shared.clock.now(), metrics, breaker }
    };
    let text = serde_json::to_string(&report).expect("a report has nothing that JSON lacks");
    let published = tokio::time::timeout(REPORT_PATIENCE, shared.leases.publish(&shared.namespace, &text));
    if !matches!(published.await, Ok(Ok(()))) {
        debug!(namespace = shared.namespace, "publishing the leader's report failed");
    }
}

/// Whether one that leaves puts this question too: it gives back what it was just given. Where it has ended the term of
/// another, who may not know it yet, it takes the place, so that nobody acts there before that lease would have run out;
/// but it does not begin with that.
fn is_owed(me: &str, before: &Ask, next: &Ask) -> bool {
    match (before, next) {
        (_, Ask::Resign { holder, .. }) => holder == me,
        (Ask::Resign { .. }, Ask::Elect { .. }) => true,
        _ => false,
    }
}

/// Puts one question, for as long as there is patience.
async fn put(shared: &Shared, ask: &Ask) -> Reply {
    let patience = shared.rules.lock().patience(ask, shared.moment());
    let leaving = async {
        shared.stop.cancelled().await;
        // An election on its way is better heard than left to run out as a lease of nobody.
        if matches!(ask, Ask::Elect { .. } | Ask::Resign { .. }) {
            tokio::time::sleep(FAREWELL_MAX).await;
        }
    };
    tokio::select! {
        answer = answer(shared, ask) => answer,
        () = leaving => Reply::Failed,
        () = tokio::time::sleep(patience) => {
            let message = format!("no response within {}", duration::format(patience));
            shared.outages.failed(ask.name(), &Error::unavailable("leases", message));
            Reply::Failed
        }
    }
}

async fn answer(shared: &Shared, ask: &Ask) -> Reply {
    let answer = match try_answer(shared, ask).await {
        Ok(answer) => answer,
        Err(Error::Conflict(_)) if matches!(ask, Ask::Elect { .. }) => Reply::Refused,
        Err(Error::Fenced { .. }) if matches!(ask, Ask::Renew { .. }) => Reply::Refused,
        Err(error) => {
            shared.outages.failed(ask.name(), &error);
            return Reply::Failed;
        }
    };
    shared.outages.succeeded("leases");
    answer
}

async fn try_answer(shared: &Shared, ask: &Ask) -> Result<Reply> {
    let (me, lease, member) = {
        let rules = shared.rules.lock();
        (rules.me().to_owned(), rules.settings().lease_timeout, rules.enrolment())
    };
    let (leases, namespace) = (&shared.leases, shared.namespace.as_str());
    Ok(match ask {
        Ask::Read => Reply::Read(leases.read(namespace).await?),
        Ask::Enroll => leases.enroll(namespace, &me, member).await.map(|()| Reply::Done)?,
        Ask::Roster => Reply::Roster(leases.roster(namespace).await?),
        Ask::Elect { floor } => Reply::Granted(leases.elect(namespace, &me, lease, Floor::Received(*floor)).await?),
        Ask::Renew { epoch } => Reply::Granted(leases.renew(namespace, &me, *epoch, lease).await?),
        Ask::Withdraw => leases.withdraw(namespace, &me).await.map(|()| Reply::Done)?,
        Ask::Resign { holder, epoch } => leases.resign(namespace, holder, *epoch).await.map(|()| Reply::Done)?,
    })
}

/// Gives up whatever is held, once nothing acts on it any more.
async fn leave(shared: &Shared) {
    let term = shared.term.borrow().clone();
    if let Some(term) = term {
        term.end();
        term.quiet().await;
    }
    let (asks, patience) = {
        let mut rules = shared.rules.lock();
        let asks = rules.step_down(shared.now());
        shared.publish(&mut rules);
        telemetry::publish_gauges(&shared.namespace, &rules);
        (asks, rules.settings().lease_timeout.min(FAREWELL_MAX))
    };
    let farewells = asks.iter().map(|ask| tokio::time::timeout(patience, answer(shared, ask)));
    for farewell in futures_util::future::join_all(farewells).await {
        if farewell != Ok(Reply::Done) {
            debug!(namespace = shared.namespace, "resigning or withdrawing failed: lease and enrolment expire");
        }
    }
}
