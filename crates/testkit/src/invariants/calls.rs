//! The calls of a mesh, as callers and handlers saw them.

use std::collections::BTreeMap;

use parking_lot::Mutex;

/// The tests fill it: a call has a number, which its request carries. Observations may arrive in any order, since
/// callers and handlers report independently.
#[derive(Debug, Default)]
pub struct CallObservations(Mutex<BTreeMap<u64, SeenCall>>);

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SeenCall {
    /// How often it was made.
    pub begins: u8,
    /// How often its end was seen by the caller: a reply, an error or its deadline.
    pub ends: u8,
    /// How often a handler was started for it.
    pub runs: u8,
    /// Its caller was killed, and may not have seen its end.
    pub is_abandoned: bool,
    pub account: Account,
}

/// The statement of a call's end about its handler.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Account {
    /// It may have run.
    #[default]
    Unsure,
    Ran,
    NothingRan,
}

impl CallObservations {
    pub fn begun(&self, number: u64) {
        self.record(number, |call| call.begins = call.begins.saturating_add(1));
    }

    pub fn ended(&self, number: u64, account: Account) {
        self.record(number, |call| {
            call.ends = call.ends.saturating_add(1);
            call.account = account;
        });
    }

    pub fn ran(&self, number: u64) {
        self.record(number, |call| call.runs = call.runs.saturating_add(1));
    }

    pub fn abandon(&self, number: u64) {
        self.record(number, |call| call.is_abandoned = true);
    }

    pub fn calls(&self) -> BTreeMap<u64, SeenCall> {
        self.0.lock().clone()
    }

    fn record(&self, number: u64, change: impl FnOnce(&mut SeenCall)) {
        change(self.0.lock().entry(number).or_default());
    }
}
