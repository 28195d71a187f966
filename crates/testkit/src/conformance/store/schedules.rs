//! Schedules: kept by name, due in order, one job a tick.

use convoke_core::ScheduleName;
use convoke_core::jobs::cron::DayRule;
use convoke_core::jobs::schedule::{Missed, Overlap, Schedule};
use convoke_core::jobs::{JobTemplate, NewJob, Priority, Status};
use convoke_core::limits::{ARGS_BYTES_MAX, PAGE_BYTES_MAX};
use convoke_core::ports::Store;
use convoke_core::ports::store::{DueSchedules, Tick, Ticked};

use super::stage::*;

pub fn schedule_name(name: &str) -> ScheduleName {
    ScheduleName::new(name).expect("a name")
}

pub fn schedule(name: &str) -> Schedule {
    Schedule {
        name: schedule_name(name),
        template: JobTemplate {
            queue: Some(queue("q")),
            args: Some(json(r#"{"n": 1}"#)),
            priority: Some(Priority::High),
            max_retries: Some(2),
            timeout: Some(seconds(30)),
            ..JobTemplate::new(convoke_core::JobType::new("t").expect("a name"))
        },
        cron: Some("*/5 * * * *".into()),
        every: None,
        tz: Some("Europe/Berlin".into()),
        day: Some(DayRule::And),
        missed: Missed::All,
        overlap: Overlap::Allow,
        paused: false,
        created_at: at(0),
        next_run_at: Some(at(10)),
        last_run_at: None,
    }
}

/// The job of a tick, made five seconds after it.
pub fn tick_job(name: &str, n: u64, second: i64) -> NewJob {
    NewJob { schedule: Some(schedule_name(name)), run_at: Some(at(second)), created_at: at(second + 5), ..job(n) }
}

fn tick(name: &str, second: i64, jobs: Vec<NewJob>) -> Tick {
    Tick {
        schedule: schedule_name(name),
        expected: at(second),
        jobs,
        skip_overlap: false,
        next_run_at: Some(at(second + 10)),
    }
}

async fn due_at_ten(store: &dyn Store, name: &str) {
    assert!(store.put_schedule(schedule(name)).await.expect("put"));
}

async fn kept(store: &dyn Store, name: &str) -> Schedule {
    store.schedule(&schedule_name(name)).await.expect("schedule").expect("it is there")
}

pub async fn due_schedules_end_when_their_bytes_are_used_up(store: &dyn Store) {
    let stage = Stage::new(store).await;
    for n in 0..10 {
        let large = schedule(&format!("s{n}")).with(|job| job.args = Some(large_args(ARGS_BYTES_MAX)));
        store.put_schedule(large).await.expect("put");
    }
    let (mut seen, mut rounds) = (Vec::new(), 0);
    while seen.len() < 10 {
        let found = store.due_schedules(at(10), 100).await.expect("due");
        let bytes: usize = found.due.iter().map(|schedule| schedule.template.args_bytes()).sum();
        assert!(!found.due.is_empty() && bytes <= PAGE_BYTES_MAX, "{bytes} bytes");
        let ticks: Vec<Tick> = found.due.iter().map(|schedule| tick(schedule.name.as_str(), 10, Vec::new())).collect();
        seen.extend(found.due.into_iter().map(|schedule| schedule.name));
        let next_at = if seen.len() < 10 { at(10) } else { at(20) };
        assert_eq!(found.next_at, Some(next_at), "the rest is due at once");
        store.tick(stage.fence, ticks).await.expect("tick");
        rounds += 1;
    }
    assert_eq!(seen, (0..10).map(|n| schedule_name(&format!("s{n}"))).collect::<Vec<_>>());
    assert_eq!(rounds, 2);
}

pub async fn schedules_are_kept_by_name(store: &dyn Store) {
    assert!(store.put_schedule(schedule("b")).await.expect("put"), "new");
    assert!(store.put_schedule(schedule("a")).await.expect("put"), "new");
    assert_eq!(store.schedules().await.expect("schedules"), [schedule("a"), schedule("b")]);
    let other = Schedule {
        cron: None,
        every: Some(seconds(60)),
        tz: None,
        paused: true,
        next_run_at: None,
        last_run_at: Some(at(3)),
        missed: Missed::Skip,
        overlap: Overlap::Skip,
        ..schedule("b").with(|job| {
            job.max_retries = None;
            job.timeout = None;
        })
    };
    assert!(!store.put_schedule(other.clone()).await.expect("put"), "replaced");
    assert_eq!(store.schedule(&schedule_name("b")).await.expect("schedule"), Some(other));
    assert!(store.remove_schedule(&schedule_name("b")).await.expect("remove"));
    assert!(!store.remove_schedule(&schedule_name("b")).await.expect("remove"));
    assert_eq!(store.schedule(&schedule_name("b")).await.expect("schedule"), None);
    assert_eq!(store.schedules().await.expect("schedules"), [schedule("a")]);
}

pub async fn due_schedules_come_earliest_first(store: &dyn Store) {
    let next = |name: &str, second| Schedule { next_run_at: Some(at(second)), ..schedule(name) };
    for schedule in [next("a", 30), next("b", 10), next("c", 20), next("d", 40)] {
        store.put_schedule(schedule).await.expect("put");
    }
    let paused = Schedule { paused: true, next_run_at: None, ..schedule("e") };
    store.put_schedule(paused).await.expect("put");
    let due = async |second, limit| store.due_schedules(at(second), limit).await.expect("due");
    assert_eq!(due(9, 9).await, DueSchedules { due: vec![], next_at: Some(at(10)) });
    assert_eq!(due(20, 9).await, DueSchedules { due: vec![next("b", 10), next("c", 20)], next_at: Some(at(30)) });
    assert_eq!(due(99, 2).await, DueSchedules { due: vec![next("b", 10), next("c", 20)], next_at: Some(at(30)) });
    let all = due(99, 9).await;
    assert_eq!((all.due.len(), all.next_at), (4, None));
}

pub async fn a_tick_makes_its_job_and_moves_the_schedule_on(store: &dyn Store) {
    let stage = Stage::new(store).await;
    due_at_ten(store, "s").await;
    let result = store.tick(stage.fence, vec![tick("s", 10, vec![tick_job("s", 1, 10)])]).await.expect("tick");
    assert_eq!(result, [Ticked { made: vec![job_id(1)], moved: true }]);
    let made = stage.job(job_id(1)).await;
    assert_eq!(made, tick_job("s", 1, 10).into_stored());
    assert_eq!(
        (made.status, made.schedule, made.scheduled_at),
        (Status::Pending, Some(schedule_name("s")), Some(at(10)))
    );
    let moved = kept(store, "s").await;
    assert_eq!((moved.next_run_at, moved.last_run_at), (Some(at(20)), Some(at(10))));
    assert_eq!(Schedule { next_run_at: Some(at(10)), last_run_at: None, ..moved }, schedule("s"), "all else as it was");
    assert_eq!(stage.dispatch_one(at(16)).await.job_id, job_id(1));
}

pub async fn a_tick_that_was_planned_from_an_older_state_does_nothing(store: &dyn Store) {
    let stage = Stage::new(store).await;
    due_at_ten(store, "moved").await;
    store.put_schedule(Schedule { paused: true, next_run_at: None, ..schedule("paused") }).await.expect("put");
    let stale = vec![
        tick("moved", 5, vec![tick_job("moved", 1, 5)]),
        tick("paused", 10, vec![tick_job("paused", 2, 10)]),
        tick("unknown", 10, vec![tick_job("unknown", 3, 10)]),
        tick("moved", 10, vec![tick_job("moved", 4, 10)]),
        tick("moved", 10, vec![tick_job("moved", 5, 10)]),
    ];
    let results = store.tick(stage.fence, stale).await.expect("tick");
    let nothing = Ticked::default();
    let made = Ticked { made: vec![job_id(4)], moved: true };
    assert_eq!(results, [nothing.clone(), nothing.clone(), nothing.clone(), made, nothing]);
    assert_eq!(stage.all().await.len(), 1);
    assert_eq!(kept(store, "paused").await.next_run_at, None);
}

pub async fn a_tick_has_one_job_however_often_it_comes(store: &dyn Store) {
    let stage = Stage::new(store).await;
    due_at_ten(store, "s").await;
    due_at_ten(store, "other").await;
    let first = tick("s", 10, vec![tick_job("s", 1, 10)]);
    store.tick(stage.fence, vec![first]).await.expect("tick");
    // The schedule is set back, as by one who replaces it with what he had read before.
    store.put_schedule(schedule("s")).await.expect("put");
    let again = tick("s", 10, vec![tick_job("s", 2, 10), tick_job("s", 3, 20)]);
    let others = tick("other", 10, vec![tick_job("other", 4, 10)]);
    let results = store.tick(stage.fence, vec![again, others]).await.expect("tick");
    assert_eq!(results[0], Ticked { made: vec![job_id(3)], moved: true });
    assert_eq!(results[1], Ticked { made: vec![job_id(4)], moved: true }, "ticks are each schedule's own");
    assert!(stage.find(job_id(2)).await.is_none());

    // Not even when the job has ended, or comes by another way.
    let runs = stage.dispatch("q", 9, at(50)).await;
    stage.end(&runs[0], at(51), completed()).await;
    store.put_schedule(schedule("s")).await.expect("put");
    let third = tick("s", 10, vec![tick_job("s", 5, 10)]);
    let result = store.tick(stage.fence, vec![third]).await.expect("tick").remove(0);
    assert_eq!(result, Ticked { made: vec![], moved: true });
    let inserted = store.insert(vec![tick_job("s", 6, 10)]).await.expect("insert").remove(0);
    assert_eq!((inserted.id, inserted.created), (job_id(1), false));
}

pub async fn a_tick_makes_no_job_while_its_unique_key_is_taken(store: &dyn Store) {
    let stage = Stage::new(store).await;
    due_at_ten(store, "s").await;
    let keyed = |n, second| tick_job("s", n, second).with(|job| job.unique_key = Some("k".into()));
    stage.enqueue([job(1).with(|job| job.unique_key = Some("k".into()))]).await;
    let taken = store.tick(stage.fence, vec![tick("s", 10, vec![keyed(2, 10)])]).await.expect("tick");
    assert_eq!(taken, [Ticked { made: vec![], moved: true }], "the schedule moves on");
    store.cancel(&[job_id(1)], None, at(15)).await.expect("cancel");
    let free = store.tick(stage.fence, vec![tick("s", 20, vec![keyed(3, 20), keyed(4, 25)])]).await.expect("tick");
    assert_eq!(free, [Ticked { made: vec![job_id(3)], moved: true }], "the first of them takes the key");
}

pub async fn a_retry_keeps_the_tick_of_a_schedules_job(store: &dyn Store) {
    let stage = Stage::new(store).await;
    due_at_ten(store, "s").await;
    store.tick(stage.fence, vec![tick("s", 10, vec![tick_job("s", 1, 10)])]).await.expect("tick");
    let run = stage.dispatch_one(at(20)).await;
    stage.end(&run, at(21), failed("x")).await;
    assert_eq!(stage.job(job_id(1)).await.scheduled_at, Some(at(10)));
    store.put_schedule(schedule("s")).await.expect("put");
    let again = store.tick(stage.fence, vec![tick("s", 10, vec![tick_job("s", 2, 10)])]).await.expect("tick");
    assert!(again[0].made.is_empty(), "so that it is known by it");
    store.cancel(&[job_id(1)], None, at(30)).await.expect("cancel");
    store.redrive(&[job_id(1)], at(31)).await.expect("redrive");
    assert_eq!(stage.job(job_id(1)).await.scheduled_at, Some(at(10)));
}

pub async fn a_tick_is_skipped_while_a_job_of_its_schedule_is_live(store: &dyn Store) {
    let stage = Stage::new(store).await;
    due_at_ten(store, "s").await;
    due_at_ten(store, "other").await;
    let skipping = |name: &str, second, jobs| Tick { skip_overlap: true, ..tick(name, second, jobs) };
    let both = vec![tick_job("s", 1, 10), tick_job("s", 2, 11)];
    let others = skipping("other", 10, vec![tick_job("other", 3, 10)]);
    let results = store.tick(stage.fence, vec![skipping("s", 10, both), others]).await.expect("tick");
    assert_eq!(results[0].made, [job_id(1)], "the first of a call stands in the way of the second");
    assert_eq!(results[1].made, [job_id(3)], "another schedule's job does not");

    // In every live state.
    let run = stage.dispatch("q", 9, at(20)).await.into_iter().find(|run| run.job_id == job_id(1)).expect("pending");
    for (second, n) in [(20, 11), (30, 12), (40, 13)] {
        let result = store.tick(stage.fence, vec![skipping("s", second, vec![tick_job("s", n, second)])]).await;
        assert_eq!(result.expect("tick"), [Ticked { made: vec![], moved: true }]);
        match second {
            20 => drop(stage.start(&run, "w", at(21)).await),
            30 => drop(stage.end(&run, at(31), failed("x")).await),
            _ => {}
        }
    }
    assert_eq!(kept(store, "s").await.last_run_at, Some(at(10)), "a skipped tick is none that ran");
    assert_eq!(kept(store, "s").await.next_run_at, Some(at(50)));
    store.cancel(&[job_id(1)], None, at(45)).await.expect("cancel");
    let result = store.tick(stage.fence, vec![skipping("s", 50, vec![tick_job("s", 14, 50)])]).await.expect("tick");
    assert_eq!(result[0].made, [job_id(14)]);
}

pub async fn ticks_that_may_overlap_all_make_their_jobs(store: &dyn Store) {
    let stage = Stage::new(store).await;
    due_at_ten(store, "s").await;
    let jobs = vec![tick_job("s", 1, 10), tick_job("s", 2, 20), tick_job("s", 3, 30)];
    let last = Tick { next_run_at: None, ..tick("s", 10, jobs) };
    let result = store.tick(stage.fence, vec![last]).await.expect("tick").remove(0);
    assert_eq!(result.made, [1, 2, 3].map(job_id));
    let after = kept(store, "s").await;
    assert_eq!((after.next_run_at, after.last_run_at), (None, Some(at(30))));
}

pub async fn a_schedule_can_move_on_without_a_job(store: &dyn Store) {
    let stage = Stage::new(store).await;
    due_at_ten(store, "s").await;
    let result = store.tick(stage.fence, vec![tick("s", 10, vec![])]).await.expect("tick");
    assert_eq!(result, [Ticked { made: vec![], moved: true }]);
    assert_eq!(kept(store, "s").await.next_run_at, Some(at(20)));
}

pub async fn jobs_outlive_their_schedule(store: &dyn Store) {
    let stage = Stage::new(store).await;
    due_at_ten(store, "s").await;
    store.tick(stage.fence, vec![tick("s", 10, vec![tick_job("s", 1, 10)])]).await.expect("tick");
    assert!(store.remove_schedule(&schedule_name("s")).await.expect("remove"));
    assert_eq!(stage.job(job_id(1)).await.schedule, Some(schedule_name("s")));
    let run = stage.dispatch_one(at(20)).await;
    stage.end(&run, at(21), completed()).await;
    assert_eq!(stage.job(job_id(1)).await.status, Status::Completed);
}

pub async fn a_schedule_is_replaced_only_if_it_is_as_it_was_read(store: &dyn Store) {
    let stage = Stage::new(store).await;
    due_at_ten(store, "s").await;
    let read = kept(store, "s").await;
    let paused = Schedule { paused: true, next_run_at: None, ..read.clone() };
    store.tick(stage.fence, vec![tick("s", 10, vec![tick_job("s", 1, 10)])]).await.expect("tick");
    assert!(!store.replace_schedule(&read, paused.clone()).await.expect("replace"), "it has ticked since");
    let read = kept(store, "s").await;
    assert_eq!((read.next_run_at, read.last_run_at), (Some(at(20)), Some(at(10))), "nothing was changed");
    let paused = Schedule { last_run_at: read.last_run_at, ..paused };
    assert!(store.replace_schedule(&read, paused.clone()).await.expect("replace"));
    assert_eq!(kept(store, "s").await, paused);
    assert!(!store.replace_schedule(&read, read.clone()).await.expect("replace"), "it was replaced since");
    assert!(store.remove_schedule(&read.name).await.expect("remove"));
    assert!(!store.replace_schedule(&paused, read.clone()).await.expect("replace"), "it was removed since");
    assert!(store.schedule(&read.name).await.expect("schedule").is_none(), "and is not back");
}
