//! Changes of schedules that come at the same time as others.

use std::sync::Arc;

use crate::common::{ports, start};
use convoke_adapters::memory::SettableClock;
use convoke_adapters::sqlite::SqliteStore;
use convoke_core::jobs::{JobDefinition, JobSpec, ScheduleSpec};
use convoke_core::ports::store::JobQuery;
use convoke_core::{Error, ScheduleName};
use convoke_runtime::jobs::Ports;

fn spec(text: &str) -> ScheduleSpec {
    serde_json::from_str(text).expect("a schedule")
}

fn name(name: &str) -> ScheduleName {
    ScheduleName::new(name).expect("a name")
}

/// A schedule is read on one thread and written on another here, so that the calls really interleave.
#[tokio::test]
async fn pausing_a_schedule_does_not_bring_it_back_while_it_is_removed() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = Arc::new(SqliteStore::open(folder.path().join("s.db")).expect("it opens"));
    let coordinator = start(&Ports { store, ..ports() }).await;
    for round in 0..50 {
        let name = name(&format!("s{round}"));
        let (schedule, _) =
            coordinator.put_schedule(name.clone(), spec(r#"{"type":"t","every":"1h"}"#)).await.expect("it is put");
        let (paused, removed) =
            tokio::join!(coordinator.pause_schedule(&schedule.name, true), coordinator.remove_schedule(&name));
        removed.expect("it is removed");
        assert!(matches!(paused, Ok(_) | Err(Error::NotFound { .. })), "{paused:?}");
        let stored = coordinator.store().schedule(&name).await.expect("schedule");
        assert!(stored.is_none(), "it was removed, and {stored:?} is back");
    }
    coordinator.stop().await;
}

#[tokio::test]
async fn pausing_a_schedule_does_not_undo_a_change_that_comes_at_the_same_time() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = Arc::new(SqliteStore::open(folder.path().join("s.db")).expect("it opens"));
    let coordinator = start(&Ports { store, ..ports() }).await;
    for round in 0..50 {
        let name = name(&format!("s{round}"));
        coordinator.put_schedule(name.clone(), spec(r#"{"type":"t","every":"1h"}"#)).await.expect("it is put");
        let put = coordinator.put_schedule(name.clone(), spec(r#"{"type":"u","every":"2h"}"#));
        let (paused, put) = tokio::join!(coordinator.pause_schedule(&name, true), put);
        paused.expect("it is paused");
        put.expect("it is put");
        let stored = coordinator.schedule(&name).await.expect("it is there");
        assert_eq!(stored.template.job_type.as_str(), "u", "the pause has not undone it");
    }
    coordinator.stop().await;
}

#[tokio::test]
async fn a_trigger_that_makes_no_job_returns_the_one_that_is_there() {
    let clock = Arc::new(SettableClock::new("2026-03-01T12:00:00Z".parse().expect("an instant")));
    let coordinator = start(&Ports { clock, ..ports() }).await;
    let name = name("s");
    coordinator.put_schedule(name.clone(), spec(r#"{"type":"t","every":"1h"}"#)).await.expect("it is put");
    let (first, created) = coordinator.trigger_schedule(&name).await.expect("it is triggered");
    assert!(created);
    let (second, created) = coordinator.trigger_schedule(&name).await.expect("it is triggered");
    assert_eq!((second.id, created), (first.id, false), "the clock stands still: the instant has its job");
    let jobs = coordinator.store().list(JobQuery { limit: 9, ..JobQuery::default() }).await.expect("a list").jobs;
    assert_eq!(jobs.iter().map(|job| job.id).collect::<Vec<_>>(), [first.id]);
    coordinator.stop().await;
}

#[tokio::test]
async fn a_schedules_jobs_have_every_option_of_its_template() {
    let coordinator = start(&ports()).await;
    let options =
        r#""type":"t","queue":"q","args":[1],"priority":"high","maxRetries":7,"timeout":"5s","correlationId":"c","#;
    let policy =
        r#""retryPolicy":{"initialDelay":"1s","multiplier":3.0,"maxDelay":"9s","jitter":"none"},"uniqueKey":"u""#;
    let every = format!(r#"{{"every":"1h",{options}{policy},"uniqueFor":"2h"}}"#);
    let (schedule, _) = coordinator.put_schedule(name("s"), spec(&every)).await.expect("it is put");
    let (job, _) = coordinator.trigger_schedule(&schedule.name).await.expect("it is triggered");
    let enqueued: JobSpec = serde_json::from_str(&format!("{{{options}{policy}}}")).expect("a job");
    let (held, created) = coordinator.enqueue(enqueued.clone()).await.expect("it is enqueued");
    assert_eq!((held.id, created), (job.id, false), "the schedule's job has the key");
    let other = enqueued.with(|job| job.unique_key = Some("v".into()));
    let (other, _) = coordinator.enqueue(other).await.expect("it is enqueued");
    let definition = JobDefinition { unique_key: Some("u".into()), ..other.definition };
    assert_eq!(job.definition, definition, "as if it had been enqueued");
    let shown = serde_json::to_value(coordinator.schedule(&schedule.name).await.expect("it is there")).expect("JSON");
    assert_eq!((&shown["retryPolicy"]["maxDelay"], &shown["uniqueFor"]), (&"9s".into(), &"2h".into()));
    coordinator.stop().await;
}
