//! Election of one leader for a namespace, among all processes that use the same backend.
//!
//! A process has at most one elector for a namespace. If a second one is started with the same address, namespace and
//! member (or no member in both cases), it is a handle of the first. However many parts of an application subscribe,
//! there is one heartbeat. When the last handle is dropped, the elector resigns and leaves;
//! [`stop`](runtime::Elector::stop) does so and waits for it.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use convoke_core::Invalid;
use convoke_core::election::{Policy, Settings};
use convoke_core::ids::check_name;
use convoke_core::ports::Leases;
use convoke_runtime::election::{self as runtime, Candidacy, WeakElector};
use convoke_runtime::jobs::NAMESPACE as CLUSTER;
use parking_lot::Mutex;

use crate::connect;
use crate::error::Result;
use crate::identity::fresh_id;

const NAMESPACE: &str = "default";
const FIRST_LOOK_MAX: Duration = Duration::from_secs(2);

/// A handle of a running elector. Clones share it.
#[derive(Clone)]
pub struct Elector {
    inner: runtime::Elector,
}

impl Elector {
    /// Connects to the backend that keeps the leases: `redis://…`, `postgres://…`, `s3://…`, `sqlite:PATH` for the
    /// processes of one machine, `memory:` for one process.
    pub async fn connect(url: &str) -> Result<Candidate> {
        Self::connect_with_prefix(url, connect::BUS_PREFIX).await
    }

    /// Like [`connect`](Self::connect), with another prefix of Redis keys than `convoke`.
    pub async fn connect_with_prefix(url: &str, prefix: &str) -> Result<Candidate> {
        let leases = connect::leases(url, prefix).await?;
        let place = format!("{prefix} {url}");
        let (namespace, settings) = (NAMESPACE.to_owned(), Settings::default());
        Ok(Candidate { leases, place: Some(place), namespace, id: None, settings })
    }

    /// Returns a candidate on the given leases. Its elector is never shared within the process.
    pub fn over(leases: Arc<dyn Leases>) -> Candidate {
        Candidate { leases, place: None, namespace: NAMESPACE.into(), id: None, settings: Settings::default() }
    }
}

impl Deref for Elector {
    type Target = runtime::Elector;

    fn deref(&self) -> &runtime::Elector {
        &self.inner
    }
}

/// Options of an elector that has not started.
pub struct Candidate {
    leases: Arc<dyn Leases>,
    /// The address, if other electors of this process may share this one. `None` for given leases.
    place: Option<String>,
    namespace: String,
    id: Option<String>,
    settings: Settings,
}

impl Candidate {
    /// Sets the namespace to lead. Default: `default`. Namespaces are independent. `coordinator` is rejected: a Convoke
    /// cluster with the same leases elects its leader under that name.
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = namespace.into();
        self
    }

    /// Sets the member's name. Default: a new random name. Live members must not share a name, because it identifies
    /// the leader.
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.id = Some(id.into());
        self
    }

    /// Sets how long a lease lasts without a renewal. The other times keep the proportions of the defaults.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.settings = self.settings.with_ttl(ttl);
        self
    }

    /// Sets which member takes a vacant lead. Default: the first to come.
    pub fn policy(mut self, policy: Policy) -> Self {
        self.settings.policy = policy;
        self
    }

    /// Sets whether members of another system take precedence while there are any in the namespace: on S3, members of
    /// s3db.js. Default: true.
    pub fn yield_to_foreign(mut self, yields: bool) -> Self {
        self.settings.yield_to_foreign = yields;
        self
    }

    /// Sets all options.
    pub fn settings(mut self, settings: Settings) -> Self {
        self.settings = settings;
        self
    }

    /// Starts the heartbeat, or joins the elector of this process that runs already. The leader is known after the
    /// first heartbeat, which follows the startup jitter.
    pub async fn start(self) -> Result<Elector> {
        self.refuse_a_bad_name().await?;
        let Candidate { leases, place, namespace, id, settings } = self;
        let Some(place) = place else {
            return Ok(Elector { inner: start(leases, namespace, id, settings)? });
        };
        let key = Key { place, namespace, id };
        loop {
            let leaving = {
                let mut running = running().lock();
                match running.get(&key) {
                    Some(elector) if let Some(inner) = elector.upgrade() => return join(inner, &settings),
                    // The resignation of the former elector would count as that of the next one with the same name.
                    // Without a given name, the next one gets a new name.
                    Some(elector) if key.id.is_some() && !elector.has_left() => elector.clone(),
                    _ => {
                        let inner = start(leases, key.namespace.clone(), key.id.clone(), settings)?;
                        running.retain(|_, elector| !elector.has_left());
                        running.insert(key, inner.downgrade());
                        return Ok(Elector { inner });
                    }
                }
            };
            leaving.left().await;
        }
    }

    /// Rejects a namespace that the backend cannot store at the start, instead of failing in every heartbeat. Any other
    /// failure may be transient.
    async fn refuse_a_bad_name(&self) -> Result<()> {
        check_name("namespace", &self.namespace).map_err(convoke_core::Error::from)?;
        if self.namespace == CLUSTER {
            // A member that won it would block the nodes of the cluster without dispatching jobs.
            let message = format!("expected another name than {CLUSTER:?}, by which a cluster elects its own leader");
            return Err(convoke_core::Error::from(Invalid::unprocessable("namespace", message)).into());
        }
        match tokio::time::timeout(FIRST_LOOK_MAX, self.leases.read(&self.namespace)).await {
            Ok(Err(error @ convoke_core::Error::Invalid(_))) => Err(error.into()),
            _ => Ok(()),
        }
    }
}

/// Returns another handle of a running elector.
fn join(inner: runtime::Elector, settings: &Settings) -> Result<Elector> {
    if inner.settings() == *settings {
        return Ok(Elector { inner });
    }
    let message = format!(
        "expected those of the elector for {} that runs in this process already; stop it first, or give this one another \
         id",
        inner.namespace()
    );
    Err(convoke_core::Error::from(Invalid::unprocessable("settings", message)).into())
}

fn start(
    leases: Arc<dyn Leases>,
    namespace: String,
    id: Option<String>,
    settings: Settings,
) -> Result<runtime::Elector> {
    let id = id.unwrap_or_else(fresh_id);
    Ok(runtime::Elector::start(Candidacy { id, namespace, leases, clock: connect::clock(), settings })?)
}

/// The key by which two electors of a process are the same.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    place: String,
    namespace: String,
    /// `None` if no name was given.
    id: Option<String>,
}

fn running() -> &'static Mutex<BTreeMap<Key, WeakElector>> {
    static RUNNING: Mutex<BTreeMap<Key, WeakElector>> = Mutex::new(BTreeMap::new());
    &RUNNING
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quick() -> Settings {
        Settings { startup_jitter_max: Duration::ZERO, ..Settings::default() }
    }

    async fn candidate(namespace: &str) -> Candidate {
        Elector::connect("memory:").await.expect("connects").namespace(namespace).settings(quick())
    }

    #[tokio::test(start_paused = true)]
    async fn a_second_start_for_the_same_namespace_joins_the_first() {
        let first = candidate("joined").await.start().await.expect("starts");
        let second = candidate("joined").await.start().await.expect("joins");
        let (one, other) = tokio::join!(first.lead(), second.lead());
        assert_eq!(one.map(|term| term.epoch()), other.map(|term| term.epoch()));
        assert_eq!(first.id(), second.id());
        assert_eq!(first.members().await.expect("roster").len(), 1);
        drop(first);
        assert!(second.is_leader(), "one handle is left");
    }

    #[tokio::test(start_paused = true)]
    async fn members_of_other_names_contend_within_one_process() {
        let first = candidate("contended").await.id("a").start().await.expect("starts");
        first.lead().await.expect("leads");
        let second = candidate("contended").await.id("b").start().await.expect("starts");
        second.events().next().await.expect("hears of the leader");
        assert_eq!(second.leader().as_deref(), Some("a"));
        drop(first);
        second.lead().await.expect("leads");
    }

    #[tokio::test(start_paused = true)]
    async fn other_settings_for_the_same_elector_are_refused() {
        let _first = candidate("settled").await.start().await.expect("starts");
        let second = candidate("settled").await.ttl(Duration::from_secs(3)).start().await;
        assert!(second.err().expect("refused").to_string().starts_with("settings: "));
        let stopped = candidate("settled").await.start().await.expect("joins");
        stopped.stop().await;
        candidate("settled").await.policy(Policy::LowestId).start().await.expect("a new one");
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_starts_again_by_the_same_name_is_a_member_from_then_on() {
        let first = candidate("again").await.id("a").start().await.expect("starts");
        let guard = first.lead().await.expect("leads").guard();
        drop(first);
        // Its resignation waits for the work of its term.
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_secs(3)).await;
            drop(guard);
        });
        let second = candidate("again").await.id("a").start().await.expect("starts");
        second.lead().await.expect("leads");
        for _ in 0..10 {
            assert_eq!(second.members().await.expect("roster"), ["a"]);
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_starts_again_without_a_name_need_not_wait_for_a_farewell() {
        let first = candidate("nameless").await.start().await.expect("starts");
        let at_work = first.lead().await.expect("leads").guard();
        let before = first.id();
        drop(first);
        let start = candidate("nameless").await.start();
        let second = tokio::time::timeout(Duration::from_secs(1), start).await.expect("at once").expect("starts");
        assert_ne!(second.id(), before);
        drop(at_work);
        second.lead().await.expect("leads");
    }

    #[tokio::test(start_paused = true)]
    async fn electors_that_do_not_know_of_each_other_have_names_of_their_own() {
        let leases = connect::leases("memory:", connect::BUS_PREFIX).await.expect("connects");
        let start = || Elector::over(leases.clone()).settings(quick()).start();
        let (first, second) = (start().await.expect("starts"), start().await.expect("starts"));
        assert_ne!(first.id(), second.id());
    }

    #[tokio::test]
    async fn a_ttl_moves_the_times_and_nothing_else() {
        let candidate = Elector::connect("memory:").await.expect("connects").policy(Policy::LowestId);
        let expected = Settings {
            policy: Policy::LowestId,
            yield_to_foreign: false,
            ..Settings::default().with_ttl(Duration::from_secs(3))
        };
        assert_eq!(candidate.yield_to_foreign(false).ttl(Duration::from_secs(3)).settings, expected);
    }

    #[tokio::test]
    async fn the_namespace_of_a_cluster_is_refused() {
        let refused = candidate(CLUSTER).await.start().await.err().expect("refused");
        assert!(refused.to_string().starts_with("namespace: expected another name"), "{refused}");
        let leases = connect::leases("memory:", connect::BUS_PREFIX).await.expect("connects");
        let refused = Elector::over(leases).namespace(CLUSTER).start().await.err().expect("refused");
        assert!(refused.to_string().starts_with("namespace: expected another name"), "{refused}");
    }

    #[tokio::test]
    async fn an_address_of_something_else_is_refused_by_its_name() {
        let refused = Elector::connect("ftp://host").await.err().expect("refused");
        assert!(refused.to_string().starts_with("leases.url: expected "), "{refused}");
    }
}
