//! The clock: it returns wall time, and time passes.

use std::time::Duration;

use convoke_core::ports::Clock;
use jiff::Timestamp;

/// Tests of a clock. `$make` is an async function that gives a [`Subject<dyn Clock>`](crate::conformance::Subject);
/// `$advance` is one that is given the clock and a duration, and lets that pass.
#[macro_export]
macro_rules! clock_conformance {
    ($make:expr, $advance:expr) => {
        $crate::conformance_tests!($make, ($advance), (clock), [is_the_present, moves_by_what_has_passed,]);
    };
}

/// A moment before this was written is past for every wall clock.
pub async fn is_the_present<C: Clock + ?Sized>(clock: &C, _advance: impl AsyncFn(&C, Duration)) {
    let written = Timestamp::from_second(1_700_000_000).expect("in range");
    assert!(clock.now() > written, "{} is not the present", clock.now());
}

pub async fn moves_by_what_has_passed<C: Clock + ?Sized>(clock: &C, advance: impl AsyncFn(&C, Duration)) {
    let before = clock.now();
    advance(clock, Duration::from_millis(20)).await;
    let after = clock.now();
    assert!(after >= before + Duration::from_millis(20), "{before} … {after}");
}
