//! A year of schedules on a real file: exactly the right ticks, however often the coordinator is restarted.

use std::collections::BTreeMap;
use std::sync::Arc;

use convoke_adapters::sqlite::SqliteStore;
use convoke_core::election::Fence;
use convoke_core::jobs::RetrySettings;
use convoke_core::jobs::schedule::{Schedule, ScheduleSpec, job_for_tick, plan};
use convoke_core::ports::Store;
use convoke_core::ports::store::{JobQuery, Tick};
use convoke_core::{Epoch, JobId, ScheduleName};
use jiff::Timestamp;
use uuid::Uuid;

const BEGIN: &str = "2026-01-01T00:00:00Z";
const END: &str = "2027-01-01T00:00:00Z";

/// Times that a change of the clock skips or repeats, in zones that change it by an hour and by half an hour, north and south.
const SCHEDULES: [(&str, &str, &str); 6] = [
    ("berlin-gap", "30 2 * * *", "Europe/Berlin"),
    ("berlin-weekly", "0 9 * * MON", "Europe/Berlin"),
    ("new-york-gap", "15 2 * * *", "America/New_York"),
    ("new-york-overlap", "30 1 * * *", "America/New_York"),
    ("lord-howe-half-hour", "10 2 * * *", "Australia/Lord_Howe"),
    ("lord-howe-monthly", "0 0 1 * *", "Australia/Lord_Howe"),
];

fn instant(text: &str) -> Timestamp {
    text.parse().expect("an instant")
}

fn schedule(name: &str, cron: &str, tz: &str) -> Schedule {
    let spec = serde_json::json!({"type": "test", "cron": cron, "tz": tz, "missed": "all", "overlap": "allow"});
    let spec: ScheduleSpec = serde_json::from_value(spec).expect("a schedule");
    spec.into_schedule(ScheduleName::new(name).expect("a name"), instant(BEGIN)).expect("it makes sense")
}

/// One pass of a leader: fires all schedules that are due at `now`, and returns the time of the next pass.
async fn pass(store: &dyn Store, fence: Fence, now: Timestamp) -> Option<Timestamp> {
    let found = store.due_schedules(now, 100).await.expect("schedules");
    let ticks = found.due.iter().map(|schedule| {
        let plan = plan(schedule, now);
        let job =
            |tick: &Timestamp| job_for_tick(schedule, JobId(Uuid::now_v7()), *tick, now, &RetrySettings::default());
        Tick {
            schedule: schedule.name.clone(),
            expected: schedule.next_run_at.expect("it is due"),
            jobs: plan.ticks.iter().map(job).collect(),
            skip_overlap: false,
            next_run_at: plan.next_run_at,
        }
    });
    let ticks: Vec<Tick> = ticks.collect();
    let moved = ticks.iter().filter_map(|tick| tick.next_run_at).min();
    store.tick(fence, ticks).await.expect("ticked");
    moved.into_iter().chain(found.next_at).min()
}

/// Every tick that was fired, by schedule.
async fn fired(store: &dyn Store) -> BTreeMap<String, Vec<Timestamp>> {
    let mut fired: BTreeMap<String, Vec<Timestamp>> = BTreeMap::new();
    let mut cursor = None;
    loop {
        let page = store.list(JobQuery { limit: 500, cursor, ..JobQuery::default() }).await.expect("a list");
        for job in page.jobs {
            let name = job.schedule.expect("made by a schedule").to_string();
            fired.entry(name).or_default().push(job.scheduled_at.expect("a tick"));
        }
        cursor = page.next_cursor;
        if cursor.is_none() {
            break;
        }
    }
    fired.values_mut().for_each(|ticks| ticks.sort());
    fired
}

/// The local times at which a daily schedule fired, counted: (fired at its own time, fired elsewhere).
fn local(ticks: &[Timestamp], tz: &str, hour: i8, minute: i8) -> (usize, Vec<String>) {
    let zone = jiff::tz::TimeZone::get(tz).expect("a zone");
    let times: Vec<_> = ticks.iter().map(|tick| tick.to_zoned(zone.clone())).collect();
    let (own, other): (Vec<_>, Vec<_>) =
        times.into_iter().partition(|time| (time.hour(), time.minute()) == (hour, minute));
    (own.len(), other.iter().map(|time| time.strftime("%m-%d %H:%M").to_string()).collect())
}

#[tokio::test]
async fn a_year_in_three_zones_fires_every_tick_once_across_restarts() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("year.db");
    let open = || Arc::new(SqliteStore::open(&path).expect("it opens")) as Arc<dyn Store>;
    let mut store = open();
    for (name, cron, tz) in SCHEDULES {
        store.put_schedule(schedule(name, cron, tz)).await.expect("it is stored");
    }
    let mut epoch = Epoch(1);
    let mut fence = store.seal(epoch).await.expect("sealed");
    let mut now = instant(BEGIN);
    let mut passes = 0u64;
    while let Some(next) = pass(&*store, fence, now).await {
        // A leader that just fired may make another pass at once: nothing may fire twice.
        pass(&*store, fence, now).await;
        now = next;
        passes += 1;
        if passes.is_multiple_of(37) {
            // Killed, and away for a while: up to four days, over every change of the clocks in turn.
            drop(store);
            store = open();
            epoch = epoch.next();
            fence = store.seal(epoch).await.expect("sealed");
            now += std::time::Duration::from_secs((passes * 7919) % (4 * 86_400));
        }
        if now >= instant(END) {
            pass(&*store, fence, now).await;
            break;
        }
    }
    let fired = fired(&*store).await;
    for (name, cron, tz) in SCHEDULES {
        let schedule = schedule(name, cron, tz);
        let first = schedule.next_run_at.expect("a first tick");
        let expected = std::iter::successors(Some(first), |tick| schedule.next_after(*tick));
        let expected: Vec<Timestamp> = expected.take_while(|tick| *tick < instant(END)).collect();
        let ticks: Vec<Timestamp> = fired[name].iter().copied().filter(|tick| *tick < instant(END)).collect();
        let odd: Vec<_> = ticks.iter().zip(&expected).filter(|(fired, due)| fired != due).take(3).collect();
        assert!(ticks == expected, "{name}: {} ticks fired, {} expected; {odd:?}", ticks.len(), expected.len());
    }
    let year = |name: &str| fired[name].iter().copied().filter(|tick| *tick < instant(END)).collect::<Vec<_>>();
    // A day whose local time is skipped fires once, after the gap; a day whose local time comes twice fires once.
    assert_eq!(local(&year("berlin-gap"), "Europe/Berlin", 2, 30), (364, vec!["03-29 03:00".into()]));
    assert_eq!(local(&year("new-york-gap"), "America/New_York", 2, 15), (364, vec!["03-08 03:00".into()]));
    assert_eq!(local(&year("new-york-overlap"), "America/New_York", 1, 30), (365, vec![]));
    assert_eq!(local(&year("lord-howe-half-hour"), "Australia/Lord_Howe", 2, 10), (364, vec!["10-04 02:30".into()]));
}
