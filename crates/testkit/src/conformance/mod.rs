//! One suite for each port: every adapter must pass the same cases.
//!
//! A case is an async function that receives a fresh adapter and panics if a sentence of the port's documentation does
//! not hold. Each suite has a macro that takes a way to create an adapter and expands to one test for each case, under
//! the case's own name:
//!
//! ```text
//! mod store {
//!     async fn fresh() -> Subject<dyn Store> { Subject::new(Arc::new(MyStore::new())) }
//!     convoke_testkit::store_conformance!(fresh);
//! }
//! ```
//!
//! Cases know no engine. If time must pass, a case calls the adapter's `advance`, which may move a paused clock or
//! really wait.

pub mod bus;
pub mod cache;
pub mod clock;
pub mod leases;
pub mod mesh;
pub mod resignations;
pub mod store;

use std::any::Any;
use std::ops::Deref;
use std::sync::Arc;

/// An adapter under test, with everything that must live as long as it does.
pub struct Subject<T: ?Sized> {
    port: Arc<T>,
    _kept: Box<dyn Any + Send>,
}

impl<T: ?Sized> Subject<T> {
    pub fn new(port: Arc<T>) -> Self {
        Subject { port, _kept: Box::new(()) }
    }

    /// Keeps a temporary directory, a server process… until the case is over.
    pub fn keeping(port: Arc<T>, kept: impl Any + Send) -> Self {
        Subject { port, _kept: Box::new(kept) }
    }
}

impl<T: ?Sized> Deref for Subject<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.port
    }
}

/// One test for each case. Not for direct use: see the suites' own macros.
#[doc(hidden)]
#[macro_export]
macro_rules! conformance_tests {
    ($make:expr, $more:tt, $module:tt, [$($case:ident),* $(,)?]) => {
        $( $crate::conformance_test!($make, $more, $module, $case); )*
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! conformance_test {
    ($make:expr, ($($more:expr),*), ($($module:ident)::+), $case:ident) => {
        #[tokio::test]
        async fn $case() {
            let subject = ($make)().await;
            $crate::conformance::$($module)::+::$case(&*subject $(, $more)*).await;
        }
    };
}

#[cfg(test)]
mod tests {
    /// Every case that is written is run: none is missing from its suite's macro.
    #[test]
    fn every_case_is_listed() {
        let listings = [
            (include_str!("cache.rs"), vec![include_str!("cache.rs")]),
            (include_str!("clock.rs"), vec![include_str!("clock.rs")]),
            (include_str!("leases.rs"), vec![include_str!("leases.rs")]),
            (include_str!("mesh.rs"), vec![include_str!("mesh.rs")]),
            (include_str!("resignations.rs"), vec![include_str!("resignations.rs")]),
            (
                include_str!("bus/mod.rs"),
                vec![
                    include_str!("bus/close.rs"),
                    include_str!("bus/multiplex.rs"),
                    include_str!("bus/queues.rs"),
                    include_str!("bus/takeover.rs"),
                    include_str!("bus/topics.rs"),
                ],
            ),
            (
                include_str!("store/mod.rs"),
                vec![
                    include_str!("store/cleaning.rs"),
                    include_str!("store/counters.rs"),
                    include_str!("store/dispatch.rs"),
                    include_str!("store/ends.rs"),
                    include_str!("store/epochs.rs"),
                    include_str!("store/in_flight.rs"),
                    include_str!("store/insert.rs"),
                    include_str!("store/list.rs"),
                    include_str!("store/members.rs"),
                    include_str!("store/queues.rs"),
                    include_str!("store/record.rs"),
                    include_str!("store/retry.rs"),
                    include_str!("store/schedules.rs"),
                    include_str!("store/unique.rs"),
                ],
            ),
        ];
        for (listing, sources) in listings {
            for source in sources {
                let cases = source.split("\npub async fn ").skip(1).filter_map(|text| text.split(['(', '<']).next());
                let cases: Vec<_> = cases.collect();
                assert!(!cases.is_empty(), "a source without cases");
                for case in cases {
                    assert!(listing.contains(&format!("{case},")), "{case} is not listed");
                }
            }
        }
    }
}
