//! Waiting with a time limit.
//!
//! A test names the condition that it waits for; how long that takes on a busy machine is no part of its assertion.

use std::fmt::Debug;
use std::future::Future;
use std::time::{Duration, Instant};

/// How long anything may take before it counts as never: generous, since it is only spent by tests that fail.
pub const PATIENCE: Duration = Duration::from_secs(60);

const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

/// Calls again until it returns a value. Panics with `what` if it never does.
pub async fn eventually<T, F: Future<Output = Option<T>>>(what: &str, mut ask: impl FnMut() -> F) -> T {
    let started = Instant::now();
    let mut pause = FIRST_PAUSE;
    loop {
        if let Some(value) = ask().await {
            return value;
        }
        assert!(started.elapsed() < PATIENCE, "{what}: did not come within {PATIENCE:?}");
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Calls again until the result is `expected`. Panics with the last result if it never is.
pub async fn wait_for_value<T: PartialEq + Debug, F: Future<Output = T>>(
    what: &str,
    expected: T,
    mut ask: impl FnMut() -> F,
) {
    let started = Instant::now();
    let mut pause = FIRST_PAUSE;
    loop {
        let value = ask().await;
        if value == expected {
            return;
        }
        assert!(started.elapsed() < PATIENCE, "{what}: expected {expected:?}, still {value:?} after {PATIENCE:?}");
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}
