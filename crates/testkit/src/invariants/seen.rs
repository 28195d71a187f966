//! The jobs as a coordinator returns them when everything has ended.

use std::collections::BTreeMap;

use serde_json::Value;
use tokio::task::{JoinError, JoinSet};

use crate::process::{Http, Node};

#[derive(Debug, Clone, Default)]
pub struct Seen {
    pub jobs: BTreeMap<String, SeenJob>,
    /// The jobs among the dead letters, as often as they are there.
    pub dead: Vec<String>,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct SeenJob {
    pub job_type: String,
    pub queue: String,
    pub status: String,
    pub attempt: u64,
    pub max_retries: u64,
    pub execution: Option<String>,
    pub ended: bool,
    pub schedule: Option<String>,
    pub scheduled_at: Option<String>,
    /// Started anew by hand: its budget began again, and attempts went on.
    pub redriven: bool,
    pub history: Vec<SeenRun>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeenRun {
    pub execution: String,
    pub attempt: u64,
    pub status: String,
}

pub(super) const TERMINAL: [&str; 4] = ["completed", "failed", "timedOut", "cancelled"];
pub(super) const DEAD: [&str; 2] = ["failed", "timedOut"];

/// Histories are asked for this many at once: one after the other takes longer than the test itself.
const ASKED_AT_ONCE_MAX: usize = 8;

impl Seen {
    /// Asks for every job there is, with its history, and for the dead letters.
    pub async fn of(node: &Node) -> Seen {
        Seen::over(node.http()).await
    }

    /// The same of any node of a cluster, wherever its jobs were recorded.
    pub async fn over(http: &Http) -> Seen {
        let mut seen = Seen::default();
        let mut histories = JoinSet::new();
        for job in http.all("/v1/jobs", "jobs").await {
            let id = text(&job, "id").expect("a job has an id");
            let again = seen.jobs.insert(id.clone(), of(&job));
            assert!(again.is_none(), "the list has job {id} twice");
            if histories.len() >= ASKED_AT_ONCE_MAX {
                seen.take_history(histories.join_next().await);
            }
            let http = http.clone();
            histories.spawn(async move { (http.read(&format!("/v1/jobs/{id}/history")).await, id) });
        }
        while !histories.is_empty() {
            seen.take_history(histories.join_next().await);
        }
        let dead = http.all("/v1/dead-letters", "deadLetters").await;
        seen.dead = dead.iter().map(|letter| text(letter, "jobId").expect("a dead letter has a job")).collect();
        seen
    }

    fn take_history(&mut self, asked: Option<Result<(Value, String), JoinError>>) {
        let (history, id) = asked.expect("one was asked for").expect("a history is returned");
        let runs = history["executions"].as_array().expect("executions").iter().map(run).collect();
        self.jobs.entry(id).and_modify(|job| job.history = runs);
    }
}

fn of(job: &Value) -> SeenJob {
    SeenJob {
        job_type: text(job, "type").unwrap_or_default(),
        queue: text(job, "queue").unwrap_or_default(),
        status: text(job, "status").unwrap_or_default(),
        attempt: job["attempt"].as_u64().unwrap_or_default(),
        max_retries: job["maxRetries"].as_u64().unwrap_or_default(),
        execution: text(job, "executionId"),
        ended: job["completedAt"].is_string(),
        schedule: text(job, "schedule"),
        scheduled_at: text(job, "scheduledAt"),
        redriven: false,
        history: Vec::new(),
    }
}

fn run(run: &Value) -> SeenRun {
    SeenRun {
        execution: text(run, "executionId").unwrap_or_default(),
        attempt: run["attempt"].as_u64().unwrap_or_default(),
        status: text(run, "status").unwrap_or_default(),
    }
}

fn text(value: &Value, field: &str) -> Option<String> {
    value[field].as_str().map(str::to_owned)
}

/// For the tests of the checks: a job that ended so, with these runs.
#[cfg(test)]
pub(super) fn job(status: &str, runs: &[(&str, &str)]) -> SeenJob {
    let history: Vec<SeenRun> = runs
        .iter()
        .zip(1..)
        .map(|((execution, status), attempt)| SeenRun {
            execution: (*execution).into(),
            attempt,
            status: (*status).into(),
        })
        .collect();
    SeenJob {
        job_type: "t".into(),
        queue: "q".into(),
        status: status.into(),
        attempt: history.len() as u64,
        max_retries: 3,
        execution: history.last().map(|run| run.execution.clone()),
        ended: TERMINAL.contains(&status),
        history,
        ..SeenJob::default()
    }
}

#[cfg(test)]
pub(super) fn seen(jobs: impl IntoIterator<Item = (&'static str, SeenJob)>) -> Seen {
    let jobs: BTreeMap<_, _> = jobs.into_iter().map(|(id, job)| (id.to_owned(), job)).collect();
    let dead = jobs.iter().filter(|(_, job)| DEAD.contains(&job.status.as_str())).map(|(id, _)| id.clone()).collect();
    Seen { jobs, dead }
}
