//! The promises, one file each: a check of what clients and workers observed against what the coordinator returns.
//!
//! [`Observations`] has the responses that clients and workers got, [`Seen`] what the coordinator returns at the end, and
//! a chronicle of [entries](Entry) every write to the store in between, with its writer. A check returns all that is
//! broken, as text. Each is itself tested by a history that breaks it, since a check that cannot fail promises nothing.

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

/// How many breaches are shown: the first few are enough.
const SHOWN_MAX: usize = 20;

/// Checks all invariants of jobs once everything has ended. Panics with the breaches.
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

/// Checks all invariants of a history that the store itself recorded. Panics with the breaches.
#[track_caller]
pub fn history_holds(entries: &[Entry]) {
    let mut broken = l1_one_holder::check(&l1_one_holder::terms(entries));
    broken.extend(l2_sealed::check(&l2_sealed::audit(entries)));
    broken.extend(j4_one_record::check_history(entries));
    broken.extend(j6_one_owner::check(entries));
    holds(&broken);
}

/// Returns the breaches of the invariants of a mesh's calls, once all have ended.
pub fn calls_broken(observations: &CallObservations) -> Vec<Broken> {
    let mut broken = m1_call_ends::check(observations);
    broken.extend(m2_sent_once::check(observations));
    broken
}

/// Panics if there is a breach.
#[track_caller]
pub fn holds(broken: &[Broken]) {
    let shown: Vec<String> = broken.iter().take(SHOWN_MAX).map(|it| format!("{}: {}", it.invariant, it.what)).collect();
    assert!(broken.is_empty(), "{} breaches:\n{}", broken.len(), shown.join("\n"));
}
