//! The promises, one file each: a check of what the outside saw against what the coordinator says.
//!
//! The [`Observations`] holds what clients and workers were told, [`Seen`] what the coordinator answers when asked at the end, and
//! a chronicle of [entries](Entry) all that the store was made to write in between, by whom. A check answers all that is
//! broken, in words. Each is itself tested by a history that breaks it, since a check that cannot fail promises nothing.

pub mod b1_channels;
pub mod c1_ticks;
mod calls;
mod chronicle;
pub mod j1_acknowledged;
pub mod j2_one_commit;
pub mod j3_all_end;
pub mod j4_one_record;
pub mod j5_attempts;
pub mod j6_one_owner;
pub mod l1_one_holder;
pub mod l2_sealed;
pub mod m1_call_ends;
pub mod m2_sent_once;
mod observations;
mod seen;

pub use calls::{Account, CallObservations, SeenCall};
pub use chronicle::{Change, Entry, Row};
pub use observations::{Acknowledged, Entries, Observations, Reported, Run};
pub use seen::{Seen, SeenJob, SeenRun};

/// One breach of a promise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Broken {
    pub invariant: &'static str,
    pub what: String,
}

/// How many breaches are shown: the first few say it all.
const SHOWN_MAX: usize = 20;

/// Checks all that can be said of jobs once everything has ended. Panics with what is broken.
#[track_caller]
pub fn jobs_hold(observations: &Observations, seen: &Seen) {
    let entries = observations.entries();
    let mut broken = j1_acknowledged::check(&entries, seen);
    broken.extend(j2_one_commit::check(&entries, seen));
    broken.extend(j3_all_end::check(seen));
    broken.extend(j4_one_record::check(&entries, seen));
    broken.extend(j5_attempts::check(seen));
    holds(&broken);
}

/// Checks all that can be said of a history that the store itself kept. Panics with what is broken.
#[track_caller]
pub fn history_holds(entries: &[Entry]) {
    let mut broken = l1_one_holder::check(&l1_one_holder::terms(entries));
    broken.extend(l2_sealed::check(&l2_sealed::audit(entries)));
    broken.extend(j4_one_record::check_history(entries));
    broken.extend(j6_one_owner::check(entries));
    holds(&broken);
}

/// All that can be said of the calls of a mesh once all is quiet.
pub fn calls_broken(observations: &CallObservations) -> Vec<Broken> {
    let mut broken = m1_call_ends::check(observations);
    broken.extend(m2_sent_once::check(observations));
    broken
}

/// Panics where something is broken.
#[track_caller]
pub fn holds(broken: &[Broken]) {
    let shown: Vec<String> = broken.iter().take(SHOWN_MAX).map(|it| format!("{}: {}", it.invariant, it.what)).collect();
    assert!(broken.is_empty(), "{} breaches:\n{}", broken.len(), shown.join("\n"));
}
