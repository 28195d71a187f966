//! The loop that reports: all waiting events in one request; while that is under way the next is collected.
//!
//! A batch is sent again until there is a response; ends are idempotent, so that is safe whether or not the first try
//! arrived. A batch that the coordinator rejects as invalid is halved until the invalid event is alone and is dropped:
//! one bad event must not block the others.

use std::sync::Arc;

use convoke_core::Error;
use convoke_core::jobs::link::{Event, Report};

use super::run_table::RunTable;
use super::session::Session;

pub(super) async fn run(session: Arc<Session>, run_table: Arc<RunTable>) {
    loop {
        let events = run_table.take(usize::MAX);
        if events.is_empty() {
            match run_table.held_until() {
                Some(at) => {
                    let _ = tokio::time::timeout_at(at, run_table.news.notified()).await;
                }
                None => run_table.news.notified().await,
            }
            continue;
        }
        send(&session, &run_table, events).await;
    }
}

async fn send(session: &Session, run_table: &RunTable, events: Vec<Event>) {
    // Parts that are still to be sent, the first of them last.
    let mut parts = vec![events];
    let mut backoff = session.backoff();
    while let Some(part) = parts.pop() {
        let term = session.term();
        let report = Report { worker_id: session.id.clone(), events: part.clone() };
        match session.link.report(report).await {
            Ok(reported) => {
                session.on_reply(run_table);
                backoff.reset();
                let stale = run_table.accepted(&part, &reported.rejected);
                if stale > 0 {
                    metrics::counter!("convoke_worker_stale_total").increment(stale as u64);
                    tracing::warn!(runs = stale, "runs dropped: the coordinator gave them to another worker");
                }
            }
            Err(error) if is_about_the_events(&error) => match halve(part) {
                Ok((first, second)) => parts.extend([second, first]),
                Err(event) => {
                    tracing::error!(job = %event.job_id, kind = event.kind.as_str(), %error, "event rejected by the coordinator");
                    run_table.refused(&event, &error.to_string());
                }
            },
            Err(error) => {
                parts.push(part);
                session.recover(run_table, "report", &error, term).await;
                tokio::time::sleep(backoff.next_delay()).await;
            }
        }
    }
}

/// Returns whether the coordinator rejects the content of a report, rather than its sender.
fn is_about_the_events(error: &Error) -> bool {
    matches!(error, Error::Invalid(_)) && !error.is_denied()
}

fn halve(mut events: Vec<Event>) -> Result<(Vec<Event>, Vec<Event>), Box<Event>> {
    match events.len() {
        1 => Err(Box::new(events.remove(0))),
        count => {
            let second = events.split_off(count / 2);
            Ok((events, second))
        }
    }
}
