//! The work of an application while it leads.
//!
//! A subscriber is a task of its own: one that is slow, or that panics, delays neither the heartbeat nor the others.
//! Its work for a term is dropped at its next await point when the term ends; `on_deposed` is called after that.

use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use convoke_core::Epoch;
use futures_util::FutureExt;
use tracing::{error, info};

use super::holder::Holder;
use super::tenure::Tenure;

type TermTask = Pin<Box<dyn Future<Output = ()> + Send>>;
type OnTerm = Box<dyn Fn(Tenure) -> TermTask + Send + Sync>;
type OnEpoch = Box<dyn Fn(Epoch) -> TermTask + Send + Sync>;

/// The callbacks of an application for its terms of leadership.
pub struct Subscriber {
    name: String,
    on_elected: Option<OnTerm>,
    on_deposed: Option<OnEpoch>,
    work: Option<(Duration, OnTerm)>,
}

impl Subscriber {
    /// Creates a subscriber without callbacks. The name is for logs.
    pub fn new(name: impl Into<String>) -> Self {
        Subscriber { name: name.into(), on_elected: None, on_deposed: None, work: None }
    }

    /// Called at the beginning of each term.
    pub fn on_elected<F>(mut self, act: impl Fn(Tenure) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.on_elected = Some(Box::new(move |term| Box::pin(act(term))));
        self
    }

    /// Called after each term's end.
    pub fn on_deposed<F>(mut self, act: impl Fn(Epoch) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.on_deposed = Some(Box::new(move |epoch| Box::pin(act(epoch))));
        self
    }

    /// Called repeatedly during a term, with `pause` between the calls, after `on_elected`.
    pub fn every<F>(mut self, pause: Duration, work: impl Fn(Tenure) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.work = Some((pause, Box::new(move |term| Box::pin(work(term)))));
        self
    }

    /// Runs all callbacks of a term.
    async fn serve(&self, term: &Tenure) {
        // `on_deposed` belongs to the term too: a resignation waits for it.
        let _serving = term.guard();
        if let Some(on_elected) = &self.on_elected {
            self.guarded(term.run(on_elected)).await;
        }
        if let Some((pause, work)) = &self.work {
            while !term.is_over() {
                self.guarded(term.run(work)).await;
                // Yields at least once, so that a pause of zero does not starve other tasks.
                tokio::task::yield_now().await;
                if !term.sleep(*pause).await {
                    break;
                }
            }
        }
        term.ended().await;
        if let Some(on_deposed) = &self.on_deposed {
            self.guarded(on_deposed(term.epoch())).await;
        }
    }

    async fn guarded<T>(&self, act: impl Future<Output = T>) {
        if AssertUnwindSafe(act).catch_unwind().await.is_err() {
            error!(subscriber = self.name, "subscriber panicked");
        }
    }
}

tokio::task_local! {
    /// The elector whose subscriber the present task is.
    static ELECTOR: Arc<Holder>;
}

/// Returns whether the caller is a subscriber of that elector.
pub(super) fn is_of(holder: &Arc<Holder>) -> bool {
    ELECTOR.try_with(|elector| Arc::ptr_eq(elector, holder)).unwrap_or(false)
}

pub(super) async fn attend(subscriber: Subscriber, holder: Arc<Holder>) {
    ELECTOR.scope(holder.clone(), attend_terms(subscriber, holder)).await;
}

async fn attend_terms(subscriber: Subscriber, holder: Arc<Holder>) {
    let mut last = Epoch(0);
    while let Some(term) = holder.next_term(last).await {
        last = term.epoch();
        info!(
            subscriber = subscriber.name,
            namespace = holder.namespace,
            epoch = last.0,
            "subscriber starts its work for a term"
        );
        subscriber.serve(&term).await;
    }
}
