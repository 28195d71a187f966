//! What a coordinator says of its jobs when everything is over.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::process::Node;

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

impl Seen {
    /// Asks for every job there is, with its history, and for the dead letters.
    pub async fn of(node: &Node) -> Seen {
        let mut seen = Seen::default();
        for job in node.all("/v1/jobs", "jobs").await {
            let id = text(&job, "id").expect("a job has an id");
            let history = node.history(&id).await.iter().map(run).collect();
            let again = seen.jobs.insert(id.clone(), SeenJob { history, ..of(&job) });
            assert!(again.is_none(), "the list has job {id} twice");
        }
        let dead = node.all("/v1/dead-letters", "deadLetters").await;
        seen.dead = dead.iter().map(|letter| text(letter, "jobId").expect("a dead letter has a job")).collect();
        seen
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
