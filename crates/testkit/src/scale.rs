//! How much a test does: `CONVOKE_TEST_SCALE=quick`, which is the default, or `full`.
//!
//! `scripts/test` sets the one, `scripts/test --full` the other. A test makes the same assertions at both; only its numbers
//! differ: jobs, rounds, messages. Tests that run only with `--full` are listed in `.config/nextest.toml`.

const VARIABLE: &str = "CONVOKE_TEST_SCALE";

/// A number of a test, for quick and for full runs.
#[derive(Debug, Clone, Copy)]
pub struct Scaled<T> {
    pub quick: T,
    pub full: T,
}

impl<T> Scaled<T> {
    /// Returns the number for this run.
    pub fn get(self) -> T {
        if is_full() { self.full } else { self.quick }
    }
}

fn is_full() -> bool {
    match std::env::var(VARIABLE).as_deref() {
        Ok("full") => true,
        Ok("quick") | Err(_) => false,
        Ok(other) => panic!("{VARIABLE} is {other:?}: expected quick or full"),
    }
}
