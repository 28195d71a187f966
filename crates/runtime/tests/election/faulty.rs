//! Leases that can be cut off, made to hang, or made to lose a response; and that count their requests.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use convoke_core::ports::leases::{Floor, Lease};
use convoke_core::ports::{Leases, Resignations};
use convoke_core::{Epoch, Error, Result};
use parking_lot::Mutex;
use tokio::time::Instant;

pub struct Faulty {
    inner: Mutex<Arc<dyn Leases>>,
    state: Mutex<State>,
    /// The fault of the next request of this kind.
    trap: Mutex<Option<(&'static str, Trap)>>,
    lease_check_interval: Option<Duration>,
    /// Whether notices come without end.
    floods: bool,
    /// When each question was asked.
    log: Mutex<Vec<(&'static str, Instant)>>,
}

type Trap = Box<dyn FnOnce() + Send>;

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Well,
    Cut,
    Hanging,
    Losing(&'static str),
    HangingOn(&'static str),
    Slow(Duration),
}

impl Faulty {
    pub fn over(inner: Arc<dyn Leases>) -> Self {
        let (inner, state) = (Mutex::new(inner), Mutex::new(State::Well));
        let lease_check_interval = Some(Duration::from_millis(500));
        Faulty { inner, state, trap: Mutex::default(), lease_check_interval, floods: false, log: Mutex::default() }
    }

    /// The same, not to be read between heartbeats without a notice.
    pub fn unread_between_heartbeats(self) -> Self {
        Faulty { lease_check_interval: None, ..self }
    }

    /// The same with a notice at every moment.
    pub fn flooding(self) -> Self {
        Faulty { floods: true, ..self }
    }

    /// It has lost all it knew; now it knows what that one does.
    pub fn become_another(&self, inner: Arc<dyn Leases>) {
        *self.inner.lock() = inner;
    }

    /// Has that happen in the middle of the next question of that kind.
    pub fn at_next(&self, verb: &'static str, trap: impl FnOnce() + Send + 'static) {
        *self.trap.lock() = Some((verb, Box::new(trap)));
    }

    fn inner(&self) -> Arc<dyn Leases> {
        self.inner.lock().clone()
    }

    pub fn cut(&self) {
        *self.state.lock() = State::Cut;
    }

    pub fn hang(&self) {
        *self.state.lock() = State::Hanging;
    }

    pub fn hang_on(&self, verb: &'static str) {
        *self.state.lock() = State::HangingOn(verb);
    }

    /// Every question is a while on its way.
    pub fn slow(&self, delay: Duration) {
        *self.state.lock() = State::Slow(delay);
    }

    pub fn mend(&self) {
        *self.state.lock() = State::Well;
    }

    /// The next request is executed, and its response is lost.
    pub fn lose_next(&self, verb: &'static str) {
        *self.state.lock() = State::Losing(verb);
    }

    /// When that was asked, each time.
    pub fn times_of(&self, verb: &str) -> Vec<Instant> {
        self.log.lock().iter().filter(|(asked, _)| *asked == verb).map(|(_, at)| *at).collect()
    }

    pub fn asked(&self) -> u64 {
        self.log.lock().len() as u64
    }

    async fn through<T>(&self, verb: &'static str, ask: impl Future<Output = Result<T>>) -> Result<T> {
        self.log.lock().push((verb, Instant::now()));
        let trap = self.trap.lock().take_if(|(awaited, _)| *awaited == verb);
        if let Some((_, trap)) = trap {
            trap();
        }
        let state = *self.state.lock();
        match state {
            State::Cut => Err(Error::unavailable("leases", "cut off")),
            State::Hanging => std::future::pending().await,
            State::Losing(lost) if lost == verb => {
                *self.state.lock() = State::Well;
                ask.await?;
                Err(Error::unknown("leases", "the response was lost"))
            }
            State::Slow(delay) => {
                tokio::time::sleep(delay).await;
                ask.await
            }
            State::HangingOn(lost) if lost == verb => std::future::pending().await,
            State::Well | State::Losing(_) | State::HangingOn(_) => ask.await,
        }
    }
}

#[async_trait]
impl Leases for Faulty {
    async fn enroll(&self, namespace: &str, member: &str, ttl: Duration) -> Result<()> {
        self.through("enroll", self.inner().enroll(namespace, member, ttl)).await
    }

    async fn withdraw(&self, namespace: &str, member: &str) -> Result<()> {
        self.through("withdraw", self.inner().withdraw(namespace, member)).await
    }

    async fn roster(&self, namespace: &str) -> Result<Vec<String>> {
        self.through("roster", self.inner().roster(namespace)).await
    }

    async fn read(&self, namespace: &str) -> Result<Option<Lease>> {
        self.through("read", self.inner().read(namespace)).await
    }

    async fn elect(&self, namespace: &str, candidate: &str, ttl: Duration, floor: Floor) -> Result<Lease> {
        self.through("elect", self.inner().elect(namespace, candidate, ttl, floor)).await
    }

    async fn renew(&self, namespace: &str, holder: &str, epoch: Epoch, ttl: Duration) -> Result<Lease> {
        self.through("renew", self.inner().renew(namespace, holder, epoch, ttl)).await
    }

    async fn resign(&self, namespace: &str, holder: &str, epoch: Epoch) -> Result<()> {
        self.through("resign", self.inner().resign(namespace, holder, epoch)).await
    }

    /// Notices are not lost with the requests: they come on a connection of their own.
    fn watch_resignations(&self, namespace: &str) -> Box<dyn Resignations> {
        if self.floods { Box::new(Flood) } else { self.inner().watch_resignations(namespace) }
    }

    fn lease_check_interval(&self) -> Option<Duration> {
        self.lease_check_interval
    }

    async fn ping(&self) -> Result<()> {
        self.through("ping", self.inner().ping()).await
    }
}

struct Flood;

#[async_trait]
impl Resignations for Flood {
    async fn next(&mut self) {}
}
