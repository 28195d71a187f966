//! Switches that remove a fence or a rule of order, so that the simulator can show that each is needed and would be missed.
//!
//! They exist in builds with the feature `mutants` alone, which only the simulator enables; without it [`mutant`] is always
//! false, and the compiler removes what it guards. A switch is set for one thread.

/// The names of all mutants, each with what it removes.
pub const MUTANTS: &[(&str, &str)] = &[
    ("epoch on promotions", "the comparison of the epoch when due jobs become pending"),
    ("epoch on dispatches", "the comparison of the epoch when runs are dispatched"),
    ("epoch on ends by the leader", "the comparison of the epoch when the leader ends runs"),
    ("epoch on ticks", "the comparison of the epoch when a schedule ticks"),
    ("epoch on cleaning", "the comparison of the epoch when channels are marked as cleaned"),
    ("epoch on deletions", "the comparison of the epoch when ended jobs are deleted"),
    ("epoch on dead workers", "the comparison of the epoch when workers are removed as dead"),
    ("epoch on dead nodes", "the comparison of the epoch when nodes are declared dead"),
    ("seal rises", "the comparison of a new seal with the present one"),
    ("seal before the first write", "the seal of a new leader's epoch"),
    ("execution on reports", "the comparison of the run when a report is recorded"),
    ("owner on channel events", "the comparison of the owner when a node records what came over the bus"),
    ("owner on offers taken", "the comparison of the owner when a node takes a run over"),
    ("tick uniqueness", "the unique key of a schedule and its tick"),
    ("commit before the confirmation", "the order of the commit of a report and its confirmation to the worker"),
    ("commit before the publication", "the order of the commit of a report and its event"),
    ("acknowledge after the commit", "the order of the commit of an enqueue and its acknowledgement on the bus"),
    ("renewal counted from before the request", "the beginning of a lease: it is counted from the response"),
    ("work ends with the lease", "the end of a leader's pass, wherever it waits, when its lease is up"),
    ("group begins at 0", "the beginning of a new group: it begins behind the last entry"),
    ("trim only what was read", "the wait for the acknowledgement before an entry of a queue is dropped"),
    ("lost runs run again", "the end of runs whose worker is silent"),
    ("channels of ended jobs are closed", "the closing of the channels of ended jobs"),
];

#[cfg(feature = "mutants")]
thread_local! {
    static ACTIVE: std::cell::Cell<Option<&'static str>> = const { std::cell::Cell::new(None) };
}

/// Sets the mutant of this thread, or none.
#[cfg(feature = "mutants")]
pub fn set_mutant(name: Option<&'static str>) {
    ACTIVE.with(|active| active.set(name));
}

/// Returns whether this mutant is set.
#[cfg(feature = "mutants")]
pub fn mutant(name: &str) -> bool {
    debug_assert!(MUTANTS.iter().any(|(known, _)| *known == name), "{name} is not listed");
    ACTIVE.with(|active| active.get() == Some(name))
}

/// Returns false: this build has no mutants.
#[cfg(not(feature = "mutants"))]
#[inline(always)]
pub const fn mutant(_name: &str) -> bool {
    false
}
