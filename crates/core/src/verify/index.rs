//! The lines of a history by what they are about.

use std::collections::{BTreeMap, BTreeSet};

use super::boots::Boot;
use super::{History, Record, Summary};
use crate::decisions::{Outcome, What};
use crate::ids::{Epoch, ExecutionId, JobId, NodeId};

/// The lines of a history by process, job, run and epoch.
#[derive(Debug, Default)]
pub struct Index<'a> {
    /// By process and start.
    pub boots: BTreeMap<(&'a NodeId, u32), Boot<'a>>,
    pub jobs: BTreeMap<JobId, Vec<&'a Record>>,
    pub runs: BTreeMap<ExecutionId, Vec<&'a Record>>,
    /// Accepted seals.
    pub seals: BTreeMap<Epoch, Vec<&'a Record>>,
    /// Lines of kinds that are about neither.
    pub ticks: Vec<&'a Record>,
    pub grants: Vec<&'a Record>,
    /// The exports of a store: each from its begin to its end.
    pub exports: Vec<Export<'a>>,
    /// The store of a process does not outlive it.
    pub is_fleeting: bool,
    torn: u64,
    lines: u64,
    decisions: u64,
    repeated: u64,
}

/// The state of a store, as it was exported.
#[derive(Debug, Default)]
pub struct Export<'a> {
    pub begin: Option<&'a Record>,
    pub end: Option<&'a Record>,
    pub jobs: BTreeMap<JobId, &'a Record>,
    pub runs: BTreeMap<JobId, Vec<&'a Record>>,
}

impl Export<'_> {
    /// Returns whether it has all jobs that there were.
    pub fn is_complete(&self) -> bool {
        let count = self.end.and_then(|end| end.decision.count);
        self.begin.is_some() && count == Some(self.jobs.len() as u64)
    }
}

impl<'a> Index<'a> {
    pub fn of(history: &'a History) -> Self {
        let mut index = Index { torn: history.torn.len() as u64, ..Index::default() };
        for record in &history.records {
            let decision = &record.decision;
            index.lines += 1;
            index.boots.entry((&decision.node, decision.boot)).or_default().add(record);
        }
        let mut exports: BTreeMap<(&NodeId, u32), Export<'_>> = BTreeMap::new();
        let mut boots = std::mem::take(&mut index.boots);
        for (process, boot) in &mut boots {
            boot.finish();
            for record in boot.lines.values() {
                index.add(record, exports.entry(*process).or_default());
            }
        }
        let unique: u64 = boots.values().map(|boot| (boot.lines.len() + boot.gaps.len()) as u64).sum();
        index.repeated = index.lines - unique;
        index.boots = boots;
        index.exports = exports.into_values().filter(|export| export.begin.is_some()).collect();
        index
    }

    fn add(&mut self, record: &'a Record, export: &mut Export<'a>) {
        let decision = &record.decision;
        self.is_fleeting |= decision.lasting == Some(false);
        if !matches!(decision.what, What::ProcessBegin | What::ProcessEnd | What::StoreBegin | What::StoreEnd) {
            self.decisions += 1;
        }
        match decision.what {
            What::EpochSeal if decision.is_accepted() => {
                let sealed = decision.after.as_ref().and_then(|mark| mark.number());
                if let Some(epoch) = sealed {
                    self.seals.entry(Epoch(epoch)).or_default().push(record);
                }
            }
            What::ShardGrant => self.grants.push(record),
            What::StoreBegin => *export = Export { begin: Some(record), ..Export::default() },
            What::StoreEnd => export.end = Some(record),
            What::StoreJob => drop(decision.job.map(|job| export.jobs.insert(job, record))),
            What::StoreRun => {
                if let Some(job) = decision.job {
                    export.runs.entry(job).or_default().push(record);
                }
            }
            _ => {}
        }
        if decision.schedule.is_some() && decision.tick.is_some() {
            self.ticks.push(record);
        }
        if let Some(job) = decision.job.filter(|_| decision.what != What::StoreRun) {
            self.jobs.entry(job).or_default().push(record);
        }
        if let Some(run) = decision.run.filter(|_| !matches!(decision.what, What::StoreRun | What::StoreJob)) {
            self.runs.entry(run).or_default().push(record);
        }
    }

    /// Returns the lines of the start of the process that wrote this one.
    pub fn boot_of(&self, record: &'a Record) -> Option<&Boot<'a>> {
        self.boots.get(&(&record.decision.node, record.decision.boot))
    }

    /// Returns how many starts of processes lack their last lines, or others: so many records of anything may be missing.
    pub fn incomplete_boots(&self) -> usize {
        self.boots.values().filter(|boot| !boot.has_ended() || !boot.is_contiguous()).count()
    }

    /// Returns the nodes that lines name and that have no history here.
    pub fn silent_nodes(&self) -> BTreeSet<&'a NodeId> {
        let mut named: BTreeSet<&NodeId> = BTreeSet::new();
        for record in self.runs.values().flatten() {
            let marks = [&record.decision.before, &record.decision.after];
            named.extend(marks.into_iter().flatten().filter_map(|mark| mark.name()));
        }
        let is_known = |node: &&NodeId| {
            let mut boots = self.boots.range((*node, 0)..=(*node, u32::MAX));
            boots.any(|(_, boot)| boot.begin().is_some())
        };
        named.retain(|node| !is_known(node));
        named
    }

    /// Returns how often a job may have been redriven.
    pub fn redrives(&self, job: JobId) -> usize {
        let lines = self.jobs.get(&job).map(Vec::as_slice).unwrap_or_default();
        // One line before each: the result may be missing.
        let asked = |it: &&&Record| (it.decision.what, it.decision.outcome) == (What::JobsRedrive, Outcome::Asked);
        lines.iter().filter(asked).count()
    }

    /// Returns whether a job may have been deleted by a request.
    pub fn may_be_purged(&self, job: JobId) -> bool {
        let lines = self.jobs.get(&job).map(Vec::as_slice).unwrap_or_default();
        lines.iter().any(|it| it.decision.what == What::JobsPurge)
    }

    /// Returns the lines by which nodes stored a job.
    pub fn stored(&self, job: JobId) -> impl Iterator<Item = &'a Record> {
        let lines = self.jobs.get(&job).map(Vec::as_slice).unwrap_or_default();
        let stores = |it: &&Record| matches!(it.decision.what, What::JobsEnqueue | What::JobsTick);
        lines.iter().copied().filter(move |it| stores(it) && it.decision.is_accepted())
    }

    /// Returns whether a job may have been deleted and its id used again: then its lines are about two jobs.
    pub fn is_reused(&self, job: JobId) -> bool {
        self.may_be_purged(job) || self.stored(job).nth(1).is_some()
    }

    /// Returns why the history does not show everything.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.decisions == 0 {
            notes.push("the history has no decisions: nothing was checked".to_owned());
        }
        for ((node, boot), lines) in self.boots.iter().filter(|(_, lines)| !lines.is_contiguous()) {
            let missing = lines.missing().max(1);
            notes.push(format!("history of {node} (boot {boot}) has a gap: at least {missing} lines are missing"));
        }
        let silent = self.silent_nodes();
        if !silent.is_empty() {
            let names: Vec<&str> = silent.iter().map(|node| node.as_str()).collect();
            notes.push(format!("no history of {}: add the files of all nodes", names.join(", ")));
        }
        if self.repeated > 0 {
            notes.push(format!("{} lines were read more than once", self.repeated));
        }
        notes
    }

    pub fn summary(&self) -> Summary {
        let nodes: BTreeSet<&NodeId> = self.boots.keys().map(|(node, _)| *node).collect();
        let all = || self.boots.values().flat_map(|boot| boot.lines.values()).map(|record| &record.decision);
        let count = |is: fn(What) -> bool| all().filter(|it| is(it.what)).count() as u64;
        Summary {
            lines: self.lines,
            decisions: self.decisions,
            refused: all().filter(|it| !it.may_have_happened()).count() as u64,
            processes: nodes.len() as u64,
            starts: self.boots.len() as u64,
            killed: self.boots.values().filter(|boot| !boot.has_ended()).count() as u64,
            epochs: self.seals.len() as u64,
            jobs: self.jobs.len() as u64,
            runs: self.runs.len() as u64,
            acknowledged: count(|what| what == What::ClientEnqueued),
            exported: self.exports.iter().map(|export| export.jobs.len() as u64).sum(),
            grants: self.grants.len() as u64,
            gaps: self.boots.values().filter(|boot| !boot.is_contiguous()).count() as u64,
            missing_nodes: self.silent_nodes().len() as u64,
            torn: self.torn,
        }
    }
}
