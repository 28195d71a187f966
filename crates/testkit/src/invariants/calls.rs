//! What callers and handlers of a mesh saw.

use parking_lot::Mutex;

/// Kept by the tests themselves: a call has a number, which its request carries.
#[derive(Debug, Default)]
pub struct CallLedger(Mutex<Vec<SeenCall>>);

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SeenCall {
    /// How often its end was seen by the caller: a reply, an error, its deadline, or the caller's own end.
    pub ends: u8,
    /// How often a handler was started for it.
    pub runs: u8,
}

impl CallLedger {
    /// The number of a call that is about to be made.
    pub fn begin(&self) -> u64 {
        let mut calls = self.0.lock();
        calls.push(SeenCall::default());
        calls.len() as u64 - 1
    }

    pub fn ended(&self, number: u64) {
        self.note(number, |call| &mut call.ends);
    }

    pub fn ran(&self, number: u64) {
        self.note(number, |call| &mut call.runs);
    }

    pub fn calls(&self) -> Vec<SeenCall> {
        self.0.lock().clone()
    }

    #[track_caller]
    fn note(&self, number: u64, count: impl FnOnce(&mut SeenCall) -> &mut u8) {
        let mut calls = self.0.lock();
        let call = usize::try_from(number).ok().and_then(|place| calls.get_mut(place));
        let count = count(call.unwrap_or_else(|| panic!("call {number} was never made")));
        *count = count.saturating_add(1);
    }
}
