//! Documents that a store cannot read: written by hand, or by a version whose words this one does not know.
//!
//! One of them must not block the others of a list, so it is left out of the list and logged, once.

use std::collections::BTreeSet;
use std::fmt::Display;

use parking_lot::Mutex;
use tracing::error;

/// How many names are remembered. Further ones are not logged.
const NAMES_MAX: usize = 1_000;

static LOGGED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// Returns the record, or logs why it cannot be read. `name` identifies it among those of its kind.
pub(crate) fn or_log<T>(kind: &'static str, name: &str, read: Result<T, impl Display>) -> Option<T> {
    let failure = match read {
        Ok(record) => return Some(record),
        Err(failure) => failure,
    };
    let mut logged = LOGGED.lock();
    if logged.len() < NAMES_MAX && logged.insert(format!("{kind} {name}")) {
        error!(kind, name, error = %failure, "stored document cannot be read and is left out: correct or delete it");
    }
    None
}
