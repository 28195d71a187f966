//! Unique keys that were found locked a moment ago. A call for one of them is rejected at once, so that retries of many
//! clients do not delay other calls again and again.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use convoke_core::jobs::NewJob;
use convoke_core::{Error, Result};
use parking_lot::Mutex;

#[derive(Debug, Default)]
pub(super) struct LockedKeys(Mutex<HashMap<String, Instant>>);

/// Not longer than the time after which clients are asked to retry.
const REMEMBERED_FOR: Duration = Duration::from_secs(1);
const REMEMBERED_MAX: usize = 10_000;

impl LockedKeys {
    /// Remembers the key of a call that has only one: of several keys, it is not known which is locked.
    pub(super) fn remember(&self, jobs: &[NewJob]) {
        let mut keys = jobs.iter().filter_map(|job| job.definition.unique_key.as_ref());
        let (Some(key), None) = (keys.next(), keys.next()) else { return };
        let mut locked = self.0.lock();
        if locked.len() >= REMEMBERED_MAX {
            locked.retain(|_, at| at.elapsed() < REMEMBERED_FOR);
        }
        if locked.len() < REMEMBERED_MAX {
            locked.insert(key.clone(), Instant::now());
        }
    }

    /// Returns `Unavailable` if one of the keys was found locked recently.
    pub(super) fn check(&self, jobs: &[NewJob]) -> Result<()> {
        let mut locked = self.0.lock();
        if locked.is_empty() {
            return Ok(());
        }
        for key in jobs.iter().filter_map(|job| job.definition.unique_key.as_ref()) {
            match locked.get(key) {
                Some(at) if at.elapsed() < REMEMBERED_FOR => return Err(Error::locked()),
                Some(_) => drop(locked.remove(key)),
                None => {}
            }
        }
        Ok(())
    }
}
