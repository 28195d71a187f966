//! After any history of jobs counters equal counts, and nothing is lost or done twice.

use convoke_core::jobs::run::Outcome;
use convoke_core::jobs::wire::Dispatch;
use convoke_core::jobs::{NewJob, Priority, RunReport, Status};
use convoke_core::ports::Store;
use convoke_core::ports::store::{Cutoffs, JobQuery, Recorded};

use super::stage::*;

impl Dice {
    fn outcome(&mut self) -> Outcome {
        match self.roll(8) {
            0..3 => completed(),
            3 => failed("x"),
            4 => failed_for_good("x"),
            5 => Outcome::TimedOut { error: "x".into() },
            6 => lost(),
            _ => Outcome::Released,
        }
    }
}

struct Workload<'a> {
    stage: Stage<'a>,
    dice: Dice,
    second: i64,
    last_job: u64,
    runs: Vec<Dispatch>,
    stored: usize,
    deleted: u64,
}

const NAMES: [&str; 3] = ["a", "b", "c"];

impl Workload<'_> {
    fn any_ids(&mut self, count: u64) -> Vec<convoke_core::JobId> {
        (0..count).map(|_| job_id(self.dice.roll(self.last_job + 2))).collect()
    }

    fn new_job(&mut self) -> NewJob {
        self.last_job += 1;
        let run_at = (self.dice.roll(4) == 0).then(|| at(self.second + 3));
        let unique_key = (self.dice.roll(4) == 0).then(|| format!("k{}", self.dice.roll(5)));
        NewJob {
            created_at: at(self.second),
            run_at,
            ..job(self.last_job).with(|job| {
                job.queue = queue(NAMES[self.dice.roll(3) as usize]);
                job.priority = Priority::ALL[self.dice.roll(4) as usize];
                job.max_retries = self.dice.roll(3) as u32;
                job.unique_key = unique_key;
            })
        }
    }

    async fn step(&mut self) {
        self.second += 1;
        let (now, store, fence) = (at(self.second), self.stage.store, self.stage.fence);
        match self.dice.roll(10) {
            0..3 => {
                let count = self.dice.roll(6);
                let jobs = (0..count).map(|_| self.new_job()).collect();
                let results = store.insert(jobs).await.expect("insert");
                self.stored += results.iter().filter(|result| result.created).count();
            }
            3..5 => {
                store.promote(fence, now, 5).await.expect("promote");
                let name = NAMES[self.dice.roll(3) as usize];
                let limit = self.dice.roll(5) as usize;
                let runs = self.stage.dispatch(name, limit, now).await;
                self.runs.extend(runs);
            }
            5..8 => self.report(now).await,
            8 => {
                let ids = self.any_ids(2);
                store.cancel(&ids, None, now).await.expect("cancel");
                let ids = self.any_ids(6);
                store.redrive(&ids, now).await.expect("redrive");
            }
            _ => {
                let ids = self.any_ids(2);
                self.deleted += store.purge(&ids, &DEAD).await.expect("purge");
                let due = store.uncleaned(now, 3).await.expect("uncleaned");
                store.mark_cleaned(fence, now, &due).await.expect("mark");
                let cutoff = at(self.second - 40);
                let cutoffs = Cutoffs { completed: cutoff, cancelled: cutoff, dead: cutoff };
                self.deleted += store.expire(fence, cutoffs, 2).await.expect("expire").jobs;
            }
        }
    }

    /// Reports ends of runs, some of which are long over.
    async fn report(&mut self, now: jiff::Timestamp) {
        for _ in 0..self.dice.roll(6) {
            if self.runs.is_empty() {
                return;
            }
            let run = self.runs[self.dice.roll(self.runs.len() as u64) as usize].clone();
            let before = self.stage.find(run.job_id).await;
            let current = before
                .as_ref()
                .is_some_and(|job| job.status.is_in_flight() && job.execution_id == Some(run.execution_id));
            let started = RunReport { started_at: Some(now), by_channel: self.dice.roll(2) == 0, ..report(&run) };
            let report = if self.dice.roll(3) == 0 { started } else { started.ended(now, self.dice.outcome(), 0.5) };
            let result = self.stage.record(report).await;
            assert_eq!(matches!(result, Recorded::Applied(_)), current, "{result:?} of {run:?}");
            if !current {
                assert_eq!(self.stage.find(run.job_id).await, before, "a late report changes nothing");
            }
        }
    }

    async fn check(&self) {
        self.stage.assert_counters().await;
        let jobs = self.stage.all().await;
        assert_eq!(jobs.len() as u64, self.stored as u64 - self.deleted, "none is lost, none appears");
        let in_flight = self.stage.store.in_flight(Default::default(), None, 10_000).await.expect("in flight");
        let mut expected: Vec<_> = jobs.iter().filter(|job| job.status.is_in_flight()).map(|job| job.id).collect();
        expected.sort();
        assert_eq!(in_flight.iter().map(|run| run.job).collect::<Vec<_>>(), expected);
        for job in &jobs {
            let ended = !job.status.is_live();
            assert_eq!(job.completed_at.is_some(), ended, "{job:?}");
            assert!(job.retry_count <= job.definition.max_retries, "{job:?}");
        }
        let mut keys: Vec<_> = jobs
            .iter()
            .filter(|job| job.status.is_live())
            .filter_map(|job| job.definition.unique_key.as_ref())
            .collect();
        let live = keys.len();
        keys.sort();
        keys.dedup();
        assert_eq!(keys.len(), live, "a key has one live job");
    }
}

pub async fn counters_equal_counts_through_a_random_workload(store: &dyn Store) {
    let stage = Stage::new(store).await;
    let dice = Dice(0x5eed_0000_c0de_0001);
    let mut work = Workload { stage, dice, second: 0, last_job: 0, runs: Vec::new(), stored: 0, deleted: 0 };
    for step in 0..400 {
        work.step().await;
        if step % 10 == 9 {
            work.check().await;
        }
    }
    work.check().await;
    assert!(work.deleted > 0 && work.stored > 200, "the workload did something of everything");
    for status in [Status::Completed, Status::Pending] {
        let query = JobQuery { statuses: vec![status], limit: 100, ..JobQuery::default() };
        assert!(!work.stage.list(query).await.is_empty(), "the workload ended with some {}", status.as_str());
    }
}
