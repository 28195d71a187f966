//! The end of every scenario: all work ends, and every promise is checked.

use std::collections::{BTreeMap, BTreeSet};

use convoke_core::jobs::Schedule;
use convoke_testkit::invariants::{
    Change, Entry, Seen, b1_channels, c1_ticks, history_holds, holds, j6_one_owner, jobs_hold,
};
use convoke_testkit::process::{Fleet, Http, eventually, wait_for_value};
use jiff::{SignedDuration, Timestamp};

use super::stage::{SCHEDULE, Stage};
use super::traffic::KINDS;

/// How many of the talkative jobs' logs are read.
const LOGS_READ: usize = 10;

impl Stage {
    /// Ends the scenario. The nodes that should run do, and nothing is parted, paused or down that should not be.
    pub async fn close(self) {
        let Stage { fleet, traffic, chronicler } = self;
        traffic.flows(40).await;
        fleet.wait_until_active().await;
        assert_owners_live(&fleet, &chronicler).await;
        traffic.end().await;
        let (schedule, until) = ticked(&fleet).await;
        let paused = format!("/v1/schedules/{SCHEDULE}/pause");
        // A busy database may hold the schedule's row for longer than a request waits: 503 means try again.
        eventually("the schedule is paused", || async {
            let response = fleet.any().post(&paused, serde_json::json!({})).await.expect("a response");
            assert!([200, 503].contains(&response.status), "{}", response.text());
            (response.status == 200).then_some(())
        })
        .await;
        wait_for_value("jobs that are not over", Vec::new(), || open_jobs(fleet.any())).await;

        let seen = Seen::over(fleet.any()).await;
        jobs_hold(&fleet.observations, &seen);
        assert_ends(&fleet, &seen);
        // With `missed: all` no tick may be left out, whoever led.
        holds(&c1_ticks::check(&seen, &schedule, schedule.created_at, until));
        assert_logs(&fleet, &seen).await;
        let entries = chronicler.entries().await;
        history_holds(&entries);
        fleet.histories_hold();
        assert_led_by_the_last_to_seal(&fleet, &entries).await;
        wait_for_value("keys of jobs on the bus", Vec::new(), || async {
            let keys = fleet.bus_keys().await;
            let left = b1_channels::check(fleet.prefix(), keys.iter().map(String::as_str));
            left.into_iter().map(|broken| broken.what).collect()
        })
        .await;
        let terms = entries.iter().filter(|entry| matches!(entry.change, Change::Sealed(_))).count();
        println!("{} jobs, {} changes of the store, {terms} terms", seen.jobs.len(), entries.len());
    }
}

/// Once healed, whatever is under way has an owner that runs. Work goes on meanwhile, so it is asked until it holds.
async fn assert_owners_live(fleet: &Fleet, chronicler: &convoke_testkit::process::Chronicler) {
    let live: BTreeSet<String> = fleet.up().map(|index| fleet.member(index).id.clone()).collect();
    wait_for_value("runs that nobody alive owns", Vec::new(), || async {
        j6_one_owner::owners_live(&chronicler.rows().await, &live).into_iter().map(|it| it.what).collect::<Vec<_>>()
    })
    .await;
}

/// The jobs that have not ended, a line each, so that the failure shows where one is stuck.
async fn open_jobs(http: &Http) -> Vec<String> {
    const LIVE: [&str; 4] = ["pending", "scheduled", "dispatched", "running"];
    let mut open = Vec::new();
    for status in LIVE {
        for job in http.all(&format!("/v1/jobs?status={status}"), "jobs").await {
            let shown = ["id", "type", "status", "ownership", "ownerNode", "workerId", "attempt", "dispatchedAt"];
            open.push(shown.map(|field| job[field].to_string()).join(" "));
        }
    }
    // A job that was released between two of the lists is in neither. Counts are of one moment.
    let queues = http.read("/v1/queues").await;
    for queue in queues["queues"].as_array().expect("queues") {
        let live = LIVE.map(|status| queue["counts"][status].as_u64().unwrap_or_default());
        if live.iter().any(|count| *count > 0) {
            open.push(format!("{} {live:?}", queue["name"]));
        }
    }
    open
}

/// Every job that exists was acknowledged or made by the schedule, and ended as its kind must.
fn assert_ends(fleet: &Fleet, seen: &Seen) {
    let acknowledged = fleet.observations.entries().acknowledged;
    let mut ends: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for (id, job) in &seen.jobs {
        *ends.entry((&job.job_type, &job.status)).or_default() += 1;
        let known = acknowledged.contains_key(id) || job.schedule.as_deref() == Some(SCHEDULE);
        assert!(known, "nobody asked for job {id}: {job:?}");
        let kind = KINDS.iter().find(|kind| kind.name == job.job_type);
        let expected = kind.map_or(&["completed"] as &[&str], |kind| kind.ends);
        assert!(
            expected.contains(&job.status.as_str()),
            "job {id} is {} and must be one of {expected:?}: {job:?}",
            job.status
        );
    }
    for kind in &KINDS {
        assert!(ends.keys().any(|(name, _)| *name == kind.name), "there was no {} job: {ends:?}", kind.name);
    }
}

/// The schedule, and until when all its ticks must have a job: until before its next one, once it has moved on.
async fn ticked(fleet: &Fleet) -> (Schedule, Timestamp) {
    let shown = async || {
        let shown = fleet.any().read(&format!("/v1/schedules/{SCHEDULE}")).await;
        let schedule: Schedule = serde_json::from_value(shown).expect("a schedule");
        (schedule.next_run_at.expect("it is not paused"), schedule)
    };
    let (before, _) = shown().await;
    let (next, schedule) = eventually("the schedule to move on", async || {
        let (next, schedule) = shown().await;
        (next > before).then_some((next, schedule))
    })
    .await;
    (schedule, next - SignedDuration::from_micros(1))
}

/// The line that each run logged before it completed is there once, on whichever node it is asked for.
async fn assert_logs(fleet: &Fleet, seen: &Seen) {
    let talkative = seen.jobs.iter().filter(|(_, job)| job.job_type == "chatty").take(LOGS_READ);
    let reports = fleet.observations.entries().reports;
    for (id, job) in talkative {
        let response = fleet.any().read(&format!("/v1/jobs/{id}/logs")).await;
        let logs = response["logs"].as_array().expect("logs");
        let reported: Vec<_> = reports.iter().filter(|report| report.job == *id).collect();
        let mut lines: BTreeMap<&str, usize> = BTreeMap::new();
        for line in logs {
            assert_eq!(line["message"], "half way");
            *lines.entry(line["executionId"].as_str().unwrap_or_default()).or_default() += 1;
        }
        let last = job.execution.as_deref().unwrap_or_default();
        let is_exact = lines.contains_key(last) && lines.values().all(|count| *count == 1);
        assert!(
            is_exact,
            "each run of job {id} logged one line, and the logs are {logs:?}: {job:?}, reported {reported:?}"
        );
    }
}

/// All nodes name the same leader and epoch, and they are those of the last seal.
async fn assert_led_by_the_last_to_seal(fleet: &Fleet, entries: &[Entry]) {
    let last = entries.iter().rev().find_map(|entry| match entry.change {
        Change::Sealed(epoch) => Some((entry.writer.clone(), epoch)),
        Change::Job { .. } => None,
    });
    let (leader, epoch) = last.expect("somebody sealed");
    for index in fleet.up() {
        wait_for_value("who leads", (Some(leader.clone()), Some(epoch)), || async {
            let cluster = fleet.member(index).cluster().await.unwrap_or_default();
            (cluster["leader"].as_str().map(str::to_owned), cluster["epoch"].as_u64())
        })
        .await;
    }
}
