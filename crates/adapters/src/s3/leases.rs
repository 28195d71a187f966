//! Rosters and terms of leadership in a bucket.
//!
//! The cost of each verb:
//!
//! | verb | requests |
//! | --- | --- |
//! | `enroll` | a PUT; for the leader, once per listing, a DELETE if a member is long gone |
//! | `withdraw` | a DELETE |
//! | `roster` | a LIST |
//! | `read` | a GET, which transfers nothing if nothing has changed |
//! | `renew`, `resign` | a PUT |
//! | `elect` | a GET and a PUT, or the PUT alone if the last seen state is over |
//!
//! Unusual events cost more: a namespace's first election, a lost race (a GET, to see the winner, and a second PUT if
//! there is no leader after all), a 409 (up to four PUTs), and reading the result of a write. A `renew` ends after two
//! requests in any case: so a leader's heartbeat has at most three.
//!
//! One verb at a time works on the state of a namespace, so that the knowledge of it never goes back.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use convoke_core::error::Invalid;
use convoke_core::ports::leases::{EPOCH_GAP, Floor, Lease, TTL_MAX};
use convoke_core::ports::{Clock, Leases};
use convoke_core::{Epoch, Error, Result};
use object_store::ObjectStore;
use object_store::path::Path;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::time::Instant;

use super::address::Address;
use super::documents::{self, EPOCH_MAX, Metadata, State, Worker, ms};
use super::names::{self, Folder};
use super::objects::{Condition, Found, Objects, REQUEST_WAIT, WHAT, Written};
use super::roster::Attendance;
use super::sighting::Knowledge;
use super::wire::{Meter, Requests};

/// Requests of a write: repeated after a 409, and to read its result.
const WRITE_MAX: Allowance = Allowance(4);
/// Requests of a renewal. The next heartbeat continues from there, and it is not far.
const RENEW_MAX: Allowance = Allowance(2);
/// The first pause after a 409; each is twice as long as the one before, minus a random part.
const BUSY_PAUSE: Duration = Duration::from_millis(40);
/// The least time that a busy server is given to reply.
const PATIENCE_MIN: Duration = Duration::from_secs(2);
/// Attempts of an election: repeated once if the state has changed meanwhile.
const TRIES: u32 = 2;

/// The leader that a report is about.
#[derive(Deserialize)]
struct Reported {
    member: String,
}

/// How many requests may still be made.
#[derive(Clone, Copy)]
struct Allowance(u32);

impl Allowance {
    fn take(&mut self) -> bool {
        let is_left = self.0 > 0;
        self.0 = self.0.saturating_sub(1);
        is_left
    }
}

pub struct S3Leases {
    objects: Objects,
    meter: Arc<Meter>,
    address: String,
    prefix: String,
    pod: String,
    clock: Arc<dyn Clock>,
    namespaces: Mutex<HashMap<String, Arc<Namespace>>>,
}

struct Namespace {
    name: String,
    folder: Folder,
    knowledge: tokio::sync::Mutex<Knowledge>,
    attendance: Mutex<Attendance>,
    /// A leader's report, until it is written with its next enrolment.
    report: Mutex<Option<(String, Box<RawValue>)>>,
}

impl S3Leases {
    /// `url` is `s3://bucket/prefix`; the server's address and the credentials are in `AWS_*` of `variables`. Errors
    /// about either name the setting `leases.url`. Makes one request, so that a missing bucket is found now.
    pub async fn connect(
        url: &str,
        variables: impl IntoIterator<Item = (String, String)>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self> {
        let meter = Arc::<Meter>::default();
        let address = Address::parse(url)?;
        let store = Arc::new(address.open(variables, meter.clone())?);
        let leases = S3Leases { meter, address: address.to_string(), ..Self::over(store, &address.prefix, clock) };
        leases.ping().await?;
        Ok(leases)
    }

    /// Creates leases in any store that has conditional writes. Its requests are not counted, and its clock is unknown.
    pub fn over(store: Arc<dyn ObjectStore>, prefix: &str, clock: Arc<dyn Clock>) -> Self {
        S3Leases {
            objects: Objects::new(store),
            meter: Arc::default(),
            address: String::new(),
            prefix: prefix.to_owned(),
            pod: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            clock,
            namespaces: Mutex::default(),
        }
    }

    /// Returns how many requests were made since it was connected.
    pub fn requests(&self) -> Requests {
        self.meter.requests()
    }

    fn namespace(&self, name: &str) -> Result<Arc<Namespace>> {
        let mut namespaces = self.namespaces.lock();
        if let Some(found) = namespaces.get(name) {
            return Ok(found.clone());
        }
        let namespace = Arc::new(Namespace {
            name: name.to_owned(),
            folder: Folder::new(&self.prefix, name)?,
            knowledge: tokio::sync::Mutex::default(),
            attendance: Mutex::default(),
            report: Mutex::default(),
        });
        namespaces.insert(name.to_owned(), namespace.clone());
        Ok(namespace)
    }

    /// Returns the wall time, for other readers of the files.
    fn now_ms(&self) -> i64 {
        self.clock.now().as_millisecond()
    }

    /// Updates the knowledge of the state.
    async fn refresh(&self, path: &Path, known: &mut Knowledge, wait: Duration) -> Result<()> {
        let etag = known.sighting.as_ref().map(|sighting| sighting.etag.as_str());
        match self.objects.read(path, etag, wait).await? {
            Found::Unchanged => {}
            Found::Missing => known.saw_nothing(),
            Found::Body { etag, body } => {
                let state = State::parse(&body)
                    .map_err(|wrong| Error::unavailable(WHAT, format!("{path} is not a lease: {wrong}")))?;
                // Some servers return the file although nothing has changed.
                if known.sighting.as_ref().is_none_or(|sighting| sighting.etag != etag) {
                    known.saw(etag, state, Instant::now());
                }
            }
        }
        Ok(())
    }

    /// Replaces the last seen state by `state`. Returns `Conflict` if another write was first, `Unknown` if the outcome
    /// is not known.
    async fn replace(
        &self,
        path: &Path,
        known: &mut Knowledge,
        state: State,
        wait: Duration,
        allowance: &mut Allowance,
    ) -> Result<Instant> {
        let write_id = state.write_id.clone().unwrap_or_default();
        let before = known.sighting.as_ref().map(|sighting| sighting.etag.clone());
        let condition = before.as_deref().map_or(Condition::Absent, Condition::Matches);
        known.will_write(&write_id, Instant::now());
        let mut pause = BUSY_PAUSE;
        while allowance.take() {
            let anchor = Instant::now();
            match self.objects.write(path, json(&state)?, condition, wait).await {
                Ok(Written::Done(etag)) => {
                    known.wrote(etag, state, anchor);
                    return Ok(anchor);
                }
                Ok(Written::Lost) => {
                    known.saw_nothing();
                    return Err(Error::Conflict("another write was first".into()));
                }
                Ok(Written::Busy) if allowance.0 > 0 => {
                    tokio::time::sleep(pause.mul_f64(rand::random_range(0.5..=1.0))).await;
                    pause *= 2;
                }
                Ok(Written::Busy) => break,
                Err(unknown @ Error::Unknown { .. }) if allowance.take() => {
                    return self.confirm_write(path, known, &before, state, anchor, wait).await.unwrap_or(Err(unknown));
                }
                Err(error) => return Err(error),
            }
        }
        Err(Error::unavailable(WHAT, "other writes are in progress"))
    }

    /// Returns the result of a write without a reply. `None` if it is not known: the write may still be on its way.
    async fn confirm_write(
        &self,
        path: &Path,
        known: &mut Knowledge,
        before: &Option<String>,
        state: State,
        anchor: Instant,
        wait: Duration,
    ) -> Option<Result<Instant>> {
        self.refresh(path, known, wait).await.ok()?;
        let found = known.sighting.as_ref()?;
        if found.state.write_id == state.write_id {
            let etag = found.etag.clone();
            known.wrote(etag, state, anchor);
            return Some(Ok(anchor));
        }
        (before.as_ref() != Some(&found.etag)).then(|| Err(Error::Conflict("another write was first".into())))
    }

    /// Returns the highest epoch that a namespace without a state may have had. s3db.js deletes its state when it is
    /// old, and leaves its checkpoint.
    async fn lost_epoch(&self, namespace: &Namespace) -> Result<u64> {
        let Found::Body { body, .. } = self.objects.read(&namespace.folder.checkpoint()?, None, REQUEST_WAIT).await?
        else {
            return Ok(0);
        };
        let checkpoint = serde_json::from_slice(&body).unwrap_or_default();
        Ok(documents::epoch(&checkpoint).unwrap_or(0))
    }

    /// Removes one member that is long gone, if this process leads. Not in the same heartbeat as a listing, to keep its
    /// number of requests: so it uses a listing that is a heartbeat or more old. A member that returned since then
    /// loses its new file, and is not on the roster until it enrols next.
    async fn sweep(&self, namespace: &Namespace) {
        let leader = match namespace.knowledge.try_lock() {
            Ok(known) if known.has_request_left => {
                known.present(Instant::now()).map(|sighting| sighting.state.leader_id.clone())
            }
            // A more important request is under way, or has used the allowance of this one.
            _ => return,
        };
        let forgotten = leader.and_then(|leader| namespace.attendance.lock().take_forgotten(&leader));
        let Some(path) = forgotten else { return };
        if let Err(error) = self.objects.delete(&path).await {
            tracing::debug!(%path, %error, "removing the file of a member that is long gone failed");
        }
    }

    /// Returns the epoch of a term that begins now.
    async fn next_epoch(&self, namespace: &Namespace, known: &mut Knowledge, floor: Epoch) -> Result<Epoch> {
        if known.sighting.is_none() {
            known.highest = known.highest.max(self.lost_epoch(namespace).await?);
        }
        let is_foreign = known.sighting.as_ref().is_some_and(|sighting| sighting.state.is_foreign());
        let gap = if is_foreign { EPOCH_GAP } else { 1 };
        let epoch = known.highest.saturating_add(gap).max(floor.0.saturating_add(1));
        if epoch > EPOCH_MAX {
            return Err(Error::unavailable(WHAT, format!("{} has reached the highest possible epoch", namespace.name)));
        }
        Ok(Epoch(epoch))
    }

    /// Writes which member came first. For people to read: a failure does not prevent the election.
    async fn describe(&self, namespace: &Namespace, candidate: &str) -> Result<()> {
        let metadata = Metadata {
            namespace: &namespace.name,
            service_id: candidate,
            created_at: self.now_ms(),
            created_by: candidate,
            plugins: [],
        };
        let path = namespace.folder.metadata()?;
        self.objects.write(&path, json(&metadata)?, Condition::Absent, REQUEST_WAIT).await?;
        Ok(())
    }
}

fn json(document: &impl Serialize) -> Result<Vec<u8>> {
    serde_json::to_vec(document).map_err(|error| Invalid::new("document", error.to_string()).into())
}

/// At least the shortest TTL: a lease must not expire at once.
fn clamp(ttl: Duration) -> Duration {
    ttl.clamp(Duration::from_millis(1), TTL_MAX)
}

/// Returns how long to wait for a write of a lease, or for reading its result: both end before a lease of usual length
/// does. For a very short lease, waiting longer is harmless: its holder counts from before the request.
fn response_timeout(ttl: Duration) -> Duration {
    (ttl / 3).max(PATIENCE_MIN)
}

fn new_write_id() -> String {
    uuid::Uuid::now_v7().to_string()
}

#[async_trait]
impl Leases for S3Leases {
    fn address(&self) -> String {
        self.address.clone()
    }

    async fn enroll(&self, namespace: &str, member: &str, ttl: Duration) -> Result<()> {
        let namespace = self.namespace(namespace)?;
        let path = namespace.folder.worker(member)?;
        let (ttl, now_ms) = (clamp(ttl), self.now_ms());
        let start_time = namespace.attendance.lock().will_enroll(member, now_ms, ttl);
        let worker = Worker {
            worker_id: member,
            plugin_name: "convoke",
            pod: &self.pod,
            last_heartbeat: now_ms,
            start_time,
            registered_at: start_time,
            namespace: &namespace.name,
            expires_at: now_ms.saturating_add(ms(ttl)),
            report: namespace.report.lock().take_if(|(of, _)| of == member).map(|(_, report)| report),
        };
        let anchor = Instant::now();
        match self.objects.write(&path, json(&worker)?, Condition::Always, REQUEST_WAIT).await? {
            Written::Done(etag) => namespace.attendance.lock().enrolled(member, etag, anchor + ttl),
            Written::Lost | Written::Busy => return Err(Error::unavailable(WHAT, "another write is in progress")),
        }
        self.sweep(&namespace).await;
        Ok(())
    }

    async fn withdraw(&self, namespace: &str, member: &str) -> Result<()> {
        let namespace = self.namespace(namespace)?;
        self.objects.delete(&namespace.folder.worker(member)?).await?;
        namespace.attendance.lock().withdrawn(member);
        Ok(())
    }

    async fn roster(&self, namespace: &str) -> Result<Vec<String>> {
        let namespace = self.namespace(namespace)?;
        let listing = self.objects.list(&namespace.folder.workers()?).await?;
        let server_now = self.meter.server_now();
        Ok(namespace.attendance.lock().present_members(&listing, Instant::now(), server_now))
    }

    async fn read(&self, namespace: &str) -> Result<Option<Lease>> {
        let namespace = self.namespace(namespace)?;
        let mut known = namespace.knowledge.lock().await;
        self.refresh(&namespace.folder.state()?, &mut known, REQUEST_WAIT).await?;
        let now = Instant::now();
        Ok(known.present(now).map(|sighting| sighting.lease(now)))
    }

    async fn elect(&self, namespace: &str, candidate: &str, ttl: Duration, floor: Floor) -> Result<Lease> {
        let floor = floor.epoch();
        if floor.0 >= EPOCH_MAX {
            return Err(Invalid::new("floor", format!("expected an epoch below {EPOCH_MAX}, got {floor}")).into());
        }
        let (namespace, ttl) = (self.namespace(namespace)?, clamp(ttl));
        // A name that cannot be enrolled cannot lead: names are the same for both.
        namespace.folder.worker(candidate)?;
        let path = namespace.folder.state()?;
        let mut known = namespace.knowledge.lock().await;
        let mut tries = 1;
        loop {
            if known.sighting.is_none() || known.present(Instant::now()).is_some() {
                self.refresh(&path, &mut known, REQUEST_WAIT).await?;
            }
            if let Some(present) = known.present(Instant::now())
                && !known.is_claimable(candidate)
            {
                let State { leader_id, epoch, .. } = &present.state;
                return Err(Error::Conflict(format!("{leader_id} leads until its term {epoch} ends")));
            }
            let is_first = known.sighting.is_none();
            let epoch = self.next_epoch(&namespace, &mut known, floor).await?;
            let state = State::elected(candidate, &self.pod, epoch.0, self.now_ms(), ttl, &new_write_id());
            let mut allowance = WRITE_MAX;
            match self.replace(&path, &mut known, state, response_timeout(ttl), &mut allowance).await {
                Ok(anchor) => {
                    drop(known);
                    if is_first && let Err(error) = self.describe(&namespace, candidate).await {
                        tracing::debug!(%error, "writing metadata.json failed");
                    }
                    let remaining = ttl.saturating_sub(anchor.elapsed());
                    return Ok(Lease { holder: candidate.to_owned(), epoch, remaining, is_foreign: false });
                }
                // The state that replaced it need not have a leader now: the winner may have resigned, or may only have
                // resigned an expired term.
                Err(Error::Conflict(_)) if tries < TRIES => tries += 1,
                Err(error) => return Err(error),
            }
        }
    }

    async fn renew(&self, namespace: &str, holder: &str, epoch: Epoch, ttl: Duration) -> Result<Lease> {
        let (namespace, ttl) = (self.namespace(namespace)?, clamp(ttl));
        let path = namespace.folder.state()?;
        let mut known = namespace.knowledge.lock().await;
        let mut allowance = RENEW_MAX;
        known.has_request_left = false;
        if known.sighting.as_ref().is_none_or(|sighting| !sighting.is_term(holder, epoch)) {
            allowance.take();
            self.refresh(&path, &mut known, response_timeout(ttl)).await?;
        }
        loop {
            let present = known.present(Instant::now()).filter(|sighting| sighting.is_term(holder, epoch));
            let Some(present) = present else { return Err(Error::Fenced { what: "renew" }) };
            let state = present.state.clone().renewed(self.now_ms(), ttl, &new_write_id());
            match self.replace(&path, &mut known, state, response_timeout(ttl), &mut allowance).await {
                Ok(anchor) => {
                    known.has_request_left = allowance.0 > 0;
                    let remaining = ttl.saturating_sub(anchor.elapsed());
                    return Ok(Lease { holder: holder.to_owned(), epoch, remaining, is_foreign: false });
                }
                // An earlier renewal without a reply may have arrived after all: then the term is still its own.
                Err(Error::Conflict(_)) if allowance.take() => {
                    self.refresh(&path, &mut known, response_timeout(ttl)).await?
                }
                Err(Error::Conflict(what)) => return Err(Error::unavailable(WHAT, what)),
                Err(error) => return Err(error),
            }
        }
    }

    async fn resign(&self, namespace: &str, holder: &str, epoch: Epoch) -> Result<()> {
        let namespace = self.namespace(namespace)?;
        let path = namespace.folder.state()?;
        let mut known = namespace.knowledge.lock().await;
        if known.sighting.as_ref().is_none_or(|sighting| !sighting.is_term(holder, epoch)) {
            self.refresh(&path, &mut known, REQUEST_WAIT).await?;
        }
        for _ in 1..=TRIES {
            let term = known.sighting.as_ref().filter(|sighting| sighting.is_term(holder, epoch));
            // An expired term is resigned, too, so that its watchers need not wait.
            let Some(term) = term.filter(|term| !term.state.is_ended()) else { return Ok(()) };
            let state = term.state.clone().resigned(self.now_ms(), &new_write_id());
            let mut allowance = WRITE_MAX;
            match self.replace(&path, &mut known, state, REQUEST_WAIT, &mut allowance).await {
                Ok(_) => return Ok(()),
                Err(Error::Conflict(_)) => self.refresh(&path, &mut known, REQUEST_WAIT).await?,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn foreign(&self) -> Option<fn(&str) -> bool> {
        Some(names::is_foreign)
    }

    /// The report is written with the enrolment of the leading member, so that it costs no request.
    fn carries_reports(&self) -> bool {
        true
    }

    async fn publish(&self, namespace: &str, report: &str) -> Result<()> {
        let invalid = |error: serde_json::Error| Invalid::new("report", error.to_string());
        let Reported { member } = serde_json::from_str(report).map_err(invalid)?;
        let report = RawValue::from_string(report.to_owned()).map_err(invalid)?;
        *self.namespace(namespace)?.report.lock() = Some((member, report));
        Ok(())
    }

    async fn published(&self, namespace: &str) -> Result<Option<String>> {
        let Some(lease) = self.read(namespace).await? else { return Ok(None) };
        let path = self.namespace(namespace)?.folder.worker(&lease.holder)?;
        match self.objects.read(&path, None, REQUEST_WAIT).await? {
            Found::Body { body, .. } => Ok(documents::report(&body)),
            Found::Missing | Found::Unchanged => Ok(None),
        }
    }

    /// Every request has a price.
    fn lease_check_interval(&self) -> Option<Duration> {
        None
    }

    /// A missing file is a valid reply; a missing bucket is not.
    async fn ping(&self) -> Result<()> {
        self.objects.read(&Folder::new(&self.prefix, "default")?.metadata()?, None, REQUEST_WAIT).await?;
        Ok(())
    }
}
