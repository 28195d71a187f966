//! Histories for the tests of the checks: what each process did, in its order, each step after the one before.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use uuid::Uuid;

use super::{Expectations, History, Place, Violation};
use crate::decisions::{ClaimKind, Decision, Mark, Outcome, What};
use crate::ids::*;
use crate::jobs::{ExecutionStatus, Status};

/// The lines of processes, each in a file of its name.
pub struct World {
    files: BTreeMap<String, Vec<Decision>>,
    boots: BTreeMap<String, u32>,
}

pub fn job(number: u64) -> JobId {
    JobId(Uuid::from_u128(u128::from(number)))
}

pub fn run(number: u64) -> ExecutionId {
    ExecutionId(Uuid::from_u128(1 << 64 | u128::from(number)))
}

/// The runs of each job have numbers of their own.
fn run_of(job: u64, number: u64) -> ExecutionId {
    run((job - 1) * 100 + number)
}

fn node(name: &str) -> NodeId {
    NodeId::new(name).expect("a name")
}

/// One breach, with its lines as `file:line`.
pub fn broken(invariant: &'static str, what: &str, proof: &[&str]) -> Vec<Violation> {
    let place = |text: &&str| {
        let (file, line) = text.split_once(':').expect("file:line");
        Place { file: file.into(), line: line.parse().expect("a number") }
    };
    vec![Violation { invariant, what: what.into(), proof: proof.iter().map(place).collect() }]
}

/// A write of a leader that was not accepted.
pub fn refused(what: What, epoch: u64, outcome: Outcome) -> Decision {
    Decision { epoch: Some(Epoch(epoch)), ..Decision::of(what, outcome) }
}

impl World {
    pub fn new() -> Self {
        World { files: BTreeMap::new(), boots: BTreeMap::new() }
    }

    pub fn history(&self) -> History {
        let mut history = History::default();
        self.files.iter().for_each(|(file, lines)| history.extend(file, lines.iter().cloned()));
        history
    }

    pub fn check(&self) -> Vec<Violation> {
        self.history().check(Expectations::default()).violations
    }

    pub fn last(&mut self, name: &str) -> &mut Decision {
        self.files.get_mut(name).and_then(|lines| lines.last_mut()).expect("a line")
    }

    pub fn write_as(&mut self, name: &str, decision: Decision) -> &mut Self {
        if decision.what != What::ProcessBegin {
            self.begin(name);
        }
        let boot = *self.boots.entry(name.into()).or_insert(1);
        let lines = self.files.entry(name.into()).or_default();
        let seq = lines.iter().filter(|it| it.boot == boot && it.what != What::Gap).count() as u64 + 1;
        let at = Timestamp::from_second(1_000_000).expect("in range");
        lines.push(Decision { node: node(name), boot, at, seq, since: seq - 1, ..decision });
        self
    }

    fn begin(&mut self, name: &str) -> &mut Decision {
        let boot = *self.boots.entry(name.into()).or_insert(1);
        let has_begun = self.files.get(name).is_some_and(|lines| lines.iter().any(|it| it.boot == boot));
        if !has_begun {
            self.write_as(name, Decision::of(What::ProcessBegin, Outcome::Accepted));
        }
        let lines = self.files.get_mut(name).expect("it has begun");
        lines.iter_mut().find(|it| it.boot == boot).expect("a line")
    }

    pub fn fleeting(&mut self, name: &str) -> &mut Self {
        self.begin(name).lasting = Some(false);
        self
    }

    pub fn retention(&mut self, name: &str, seconds: u64) -> &mut Self {
        self.begin(name).retention_s = Some(seconds);
        self
    }

    /// It is killed and starts again.
    pub fn restart(&mut self, name: &str) -> &mut Self {
        self.begin(name);
        *self.boots.get_mut(name).expect("it has begun") += 1;
        self.begin(name);
        self
    }

    pub fn end(&mut self, name: &str) -> &mut Self {
        self.write_as(name, Decision::of(What::ProcessEnd, Outcome::Accepted))
    }

    pub fn gap(&mut self, name: &str) -> &mut Self {
        self.write_as(name, Decision { count: Some(3), ..Decision::of(What::Gap, Outcome::Accepted) })
    }

    /// Its clock is so many seconds ahead.
    pub fn later(&mut self, name: &str, seconds: i64) -> &mut Self {
        let lines = self.files.get_mut(name).expect("it has lines");
        lines.iter_mut().for_each(|it| it.at += SignedDuration::from_secs(seconds));
        self
    }

    pub fn elect(&mut self, name: &str, epoch: u64) -> &mut Self {
        let after = Some(Mark::Name(node(name)));
        self.write_as(name, Decision { after, ..refused(What::LeaseElect, epoch, Outcome::Accepted) })
    }

    pub fn seal(&mut self, name: &str, epoch: u64) -> &mut Self {
        self.seal_as(name, epoch, Outcome::Accepted)
    }

    pub fn seal_as(&mut self, name: &str, epoch: u64, outcome: Outcome) -> &mut Self {
        self.write_as(name, Decision { after: Some(Mark::Number(epoch)), ..Decision::of(What::EpochSeal, outcome) })
    }

    fn about(&self, what: What, of: u64) -> Decision {
        Decision { job: Some(job(of)), ..Decision::of(what, Outcome::Accepted) }
    }

    fn stored(&self, what: What, of: u64) -> Decision {
        Decision {
            job_type: Some(JobType::new("t").expect("a name")),
            queue: Some(QueueName::new("q").expect("a name")),
            ..self.about(what, of)
        }
    }

    pub fn enqueue(&mut self, name: &str, of: u64) -> &mut Self {
        self.write_as(name, self.stored(What::JobsEnqueue, of))
    }

    pub fn enqueued(&mut self, name: &str, of: u64) -> &mut Self {
        self.write_as(name, self.stored(What::ClientEnqueued, of))
    }

    pub fn purge(&mut self, name: &str, of: u64) -> &mut Self {
        self.write_as(name, Decision { outcome: Outcome::Asked, ..self.about(What::JobsPurge, of) })
    }

    pub fn redrive(&mut self, name: &str, of: u64) -> &mut Self {
        self.write_as(name, Decision { outcome: Outcome::Asked, ..self.about(What::JobsRedrive, of) });
        self.write_as(name, self.about(What::JobsRedrive, of))
    }

    pub fn tick(&mut self, name: &str, epoch: u64, of: u64, second: i64) -> &mut Self {
        let tick = Decision {
            epoch: Some(Epoch(epoch)),
            schedule: Some(ScheduleName::new("s").expect("a name")),
            tick: Timestamp::from_second(second).ok(),
            ..self.stored(What::JobsTick, of)
        };
        self.write_as(name, tick)
    }

    pub fn dispatch(&mut self, name: &str, epoch: u64, of: u64, attempt: u32) -> &mut Self {
        let dispatch = Decision {
            epoch: Some(Epoch(epoch)),
            run: Some(run_of(of, attempt.into())),
            attempt: Some(attempt),
            attempts_max: Some(10),
            ..self.about(What::JobsDispatch, of)
        };
        self.write_as(name, dispatch)
    }

    fn ending(&self, what: What, of: u64, number: u64, end: ExecutionStatus) -> Decision {
        let status = match end {
            ExecutionStatus::Completed => Status::Completed,
            ExecutionStatus::Failed => Status::Failed,
            _ => Status::Pending,
        };
        Decision { run: Some(run_of(of, number)), end: Some(end), status: Some(status), ..self.about(what, of) }
    }

    pub fn report(&mut self, name: &str, of: u64, number: u64, end: ExecutionStatus) -> &mut Self {
        self.write_as(name, self.ending(What::RunReport, of, number, end))
    }

    pub fn report_as(&mut self, name: &str, of: u64, number: u64, end: ExecutionStatus, outcome: Outcome) -> &mut Self {
        self.write_as(name, Decision { outcome, status: None, ..self.ending(What::RunReport, of, number, end) })
    }

    pub fn end_as_leader(&mut self, name: &str, epoch: u64, of: u64, number: u64) -> &mut Self {
        let end = self.ending(What::RunEnd, of, number, ExecutionStatus::Lost);
        self.write_as(name, Decision { epoch: Some(Epoch(epoch)), ..end })
    }

    pub fn reported(&mut self, name: &str, of: u64, number: u64, end: ExecutionStatus) -> &mut Self {
        let run = Some(run_of(of, number));
        self.write_as(name, Decision { run, end: Some(end), ..self.about(What::ClientReported, of) })
    }

    pub fn ended(&mut self, name: &str, of: u64, status: &str) -> &mut Self {
        self.write_as(name, Decision { status: Status::parse(status), ..self.about(What::ClientEnded, of) })
    }

    pub fn claim(&mut self, name: &str, of: u64, number: u64) -> &mut Self {
        let claim = Decision {
            run: Some(run_of(of, number)),
            claim: Some(ClaimKind::IfFree),
            after: Some(Mark::Name(node(name))),
            ..self.about(What::RunClaim, of)
        };
        self.write_as(name, claim)
    }

    pub fn takes(&mut self, name: &str, of: u64, number: u64, from: &str) -> &mut Self {
        let (before, after) = (Some(Mark::Name(node(from))), Some(Mark::Name(node(name))));
        self.write_as(name, Decision { run: Some(run_of(of, number)), before, after, ..self.about(What::RunTake, of) })
    }

    pub fn grant(&mut self, name: &str, worker: &str, version: u64, shards: &[(u32, u32)]) -> &mut Self {
        let grant = Decision {
            service: Some(ServiceName::new("app").expect("a name")),
            worker: Some(WorkerId::new(worker).expect("a name")),
            after: Some(Mark::Number(version)),
            shards: shards.to_vec(),
            ..Decision::of(What::ShardGrant, Outcome::Accepted)
        };
        self.write_as(name, grant)
    }

    /// An export of these jobs.
    pub fn export(&mut self, name: &str, jobs: &[(u64, &str)]) -> &mut Self {
        self.write_as(name, Decision::of(What::StoreBegin, Outcome::Accepted));
        for (of, status) in jobs {
            let status = Status::parse(status).expect("a status");
            let run = (!status.is_live()).then(|| run_of(*of, 1));
            self.write_as(name, Decision { status: Some(status), run, ..self.stored(What::StoreJob, *of) });
        }
        let count = Some(jobs.len() as u64);
        self.write_as(name, Decision { count, ..Decision::of(What::StoreEnd, Outcome::Accepted) })
    }

    /// The run of the last exported job.
    pub fn exported_run(&mut self, name: &str, number: u64) -> &mut Self {
        let lines = self.files.get_mut(name).expect("it has lines");
        let job = lines.iter_mut().rev().find(|it| it.what == What::StoreJob).expect("an exported job");
        job.run = Some(run(number));
        self
    }

    /// An export of one job with its runs, numbered by attempt.
    pub fn export_runs(
        &mut self,
        name: &str,
        of: u64,
        status: &str,
        attempts: u32,
        runs: &[(u32, ExecutionStatus)],
    ) -> &mut Self {
        self.write_as(name, Decision::of(What::StoreBegin, Outcome::Accepted));
        let status = Status::parse(status);
        let (attempt, attempts_max) = (Some(attempts), Some(10));
        self.write_as(name, Decision { status, attempt, attempts_max, ..self.stored(What::StoreJob, of) });
        for (attempt, end) in runs {
            let (run, end) = (Some(run_of(of, (*attempt).into())), Some(*end));
            self.write_as(name, Decision { run, end, attempt: Some(*attempt), ..self.about(What::StoreRun, of) });
        }
        self.write_as(name, Decision { count: Some(1), ..Decision::of(What::StoreEnd, Outcome::Accepted) })
    }
}
