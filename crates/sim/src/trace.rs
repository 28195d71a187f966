//! What happened in a world, in order: a number for all of it, and the lines if somebody wants to read them.
//!
//! Two runs of a seed are the same if their numbers are. The lines are only made for a seed that failed.

use std::hash::{DefaultHasher, Hash, Hasher};

/// How many lines are kept: the last ones.
const LINES_MAX: usize = 20_000;

/// The trace of one run.
#[derive(Default)]
pub struct Trace {
    hasher: DefaultHasher,
    steps: u64,
    is_read: bool,
    lines: Vec<String>,
}

impl Trace {
    /// Creates a trace; `is_read`: with its lines.
    pub fn new(is_read: bool) -> Self {
        Trace { is_read, ..Trace::default() }
    }

    /// Adds a step.
    pub fn add(&mut self, at_ms: u64, who: &str, line: impl FnOnce() -> String) {
        self.count(at_ms, who);
        if self.is_read && self.lines.len() < LINES_MAX {
            self.lines.push(format!("{at_ms:>6} ms  {who:<4} {}", line()));
        }
    }

    /// Adds a step without a line.
    pub fn count(&mut self, at_ms: u64, who: &str) {
        (at_ms, who).hash(&mut self.hasher);
        self.steps += 1;
    }

    /// Returns the number of all steps so far.
    pub fn number(&self) -> u64 {
        self.hasher.finish()
    }

    pub fn steps(&self) -> u64 {
        self.steps
    }

    pub fn lines(&self) -> &[String] {
        &self.lines
    }
}
