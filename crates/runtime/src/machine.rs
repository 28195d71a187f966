//! The machine's wall clock and random numbers, for the parts that are given no port for them: a link, a client, an elector.
//!
//! No other file of this crate reads either, so that a simulation repeats itself: it [`replace`]s both for its thread, and
//! everything else that it starts is given a [`Clock`] and a [`Chance`]. Monotonic time is tokio's everywhere.

use std::cell::RefCell;
use std::sync::Arc;

use convoke_core::ports::{Chance, Clock};
use jiff::Timestamp;
use uuid::Uuid;

thread_local! {
    static REPLACED: RefCell<Option<Sources>> = const { RefCell::new(None) };
}

#[derive(Clone)]
struct Sources {
    clock: Arc<dyn Clock>,
    chance: Arc<dyn Chance>,
}

/// Ends the replacement of the machine's sources when it is dropped.
#[must_use = "the machine's own sources are back when this is dropped"]
pub struct Replaced(());

impl Drop for Replaced {
    fn drop(&mut self) {
        REPLACED.with(|replaced| replaced.borrow_mut().take());
    }
}

/// Replaces the machine's clock and random numbers on this thread: for a simulation whose runtime has one thread.
pub fn replace(clock: Arc<dyn Clock>, chance: Arc<dyn Chance>) -> Replaced {
    REPLACED.with(|replaced| *replaced.borrow_mut() = Some(Sources { clock, chance }));
    Replaced(())
}

fn sources() -> Option<Sources> {
    REPLACED.with(|replaced| replaced.borrow().clone())
}

/// Returns 64 random bits.
pub(crate) fn bits() -> u64 {
    sources().map_or_else(rand::random, |sources| sources.chance.bits())
}

/// Returns a random number from 0 to below 1.
pub(crate) fn fraction() -> f64 {
    sources().map_or_else(rand::random, |sources| sources.chance.fraction())
}

/// Returns the present wall time.
pub(crate) fn now() -> Timestamp {
    sources().map_or_else(Timestamp::now, |sources| sources.clock.now())
}

/// Returns an id that contains the time.
pub(crate) fn id() -> Uuid {
    match sources() {
        Some(Sources { clock, chance }) => chance.id(clock.now()),
        None => Uuid::now_v7(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Same;

    impl Chance for Same {
        fn bits(&self) -> u64 {
            7
        }
    }

    impl Clock for Same {
        fn now(&self) -> Timestamp {
            Timestamp::UNIX_EPOCH
        }
    }

    #[test]
    fn a_thread_uses_what_replaced_the_machine_until_it_is_dropped() {
        assert_ne!((bits(), id()), (bits(), id()));
        let replaced = replace(Arc::new(Same), Arc::new(Same));
        assert_eq!((bits(), now(), id()), (7, Timestamp::UNIX_EPOCH, id()));
        assert!(fraction() < 1.0);
        assert!(std::thread::spawn(now).join().expect("it ends") > Timestamp::UNIX_EPOCH, "of this thread alone");
        drop(replaced);
        assert!(now() > Timestamp::UNIX_EPOCH);
    }
}
