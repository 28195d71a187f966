//! Streams of server-sent events: events of all nodes, and the log of a job.
//!
//! `/v1/events` publishes the events of all nodes, each by itself or, with `every`, their numbers at most once in that
//! time: a page that only wants to know whether something happened is not flooded. A reader that is too slow receives the number of missed events
//! (`lagged`) and continues from there; a client that needs every change reads the state again. A job's logs are
//! complete: they are replayed from the store from the reader's position, followed while the job lives, and closed by
//! `end`. The number of streams is limited, since each holds a connection and up to a page of lines; a reader that
//! stops reading loses its connection. They end when the server closes.

use std::collections::{BTreeMap, HashSet};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::sse::{Event as Sent, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use convoke_core::jobs::event::NAMES;
use convoke_core::jobs::{Event, Job, LogLine, Status};
use convoke_core::limits::PAGE_MAX;
use convoke_core::{Error, JobId, duration};
use futures_util::stream::{self, Stream};
use http::HeaderMap;
use serde::Serialize;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{OwnedSemaphorePermit, broadcast, mpsc};
use tokio::time::Instant;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::AppState;
use super::access::Caller;
use super::body::{Params, Segment};
use super::error::{ApiError, ApiResult};
use super::jobs::WAIT_MAX;
use super::openapi as doc;

pub const STREAMS_MAX: usize = 1_000;
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// How often a job's log is read: soon after new lines, less often the longer there were none.
const CHECK_INTERVAL_MIN: Duration = Duration::from_millis(100);
const CHECK_INTERVAL_MAX: Duration = Duration::from_secs(1);
/// The shortest and the longest time between two digests.
const DIGEST_EVERY: std::ops::RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(60);
/// Lines that wait for a slow reader beside their page, which is bounded in bytes.
const LINES_BUFFERED: usize = 1;

pub fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(events)).routes(routes!(logs))
}

/// Watch events
///
/// Any node sends the events of all nodes. Each event's name is in `event`, its JSON in `data`: `node` is the node
/// where it happened. `lagged` has the number of missed events. With `every` the stream has only `digest` events, at
/// most one in that time: `events` is the number of events by name, `missed` the number of those that were not counted.
/// Comments keep the connection alive.
#[utoipa::path(get, path = "/v1/events", tag = "events", params(doc::EventsParams), responses(
    (status = 200, body = String, content_type = "text/event-stream"),
    doc::Refused,
))]
async fn events(State(state): State<AppState>, mut params: Params) -> ApiResult {
    let filter = Filter(params.parse_by("types", kinds)?);
    let every = params.parse_by("every", |text| match duration::parse(text)? {
        every if DIGEST_EVERY.contains(&every) => Ok(every),
        _ => Err(format!("expected 100ms to 1m, got {text:?}")),
    })?;
    params.end()?;
    let board = Board {
        receiver: state.coordinator.events(),
        filter,
        closing: state.closing.clone(),
        _permit: permit(&state)?,
    };
    if let Some(every) = every {
        let (lines, following) = mpsc::channel(LINES_BUFFERED);
        tokio::spawn(Digests { board, every, sent_at: None }.run(lines));
        return Ok(stream_response(ReceiverStream::new(following)));
    }
    Ok(stream_response(stream::unfold(board, |mut board| async {
        let sent = board.next().await?;
        Some((Ok::<_, Infallible>(sent), board))
    })))
}

/// Parses `types`: kinds, names, or both.
fn kinds(text: &str) -> Result<HashSet<String>, String> {
    text.split(',').map(str::trim).map(|word| known(word).map(|()| word.to_owned())).collect()
}

fn known(word: &str) -> Result<(), String> {
    let kind = kind_of(word);
    let names: Vec<&str> = NAMES.into_iter().filter(|name| kind_of(name) == kind).collect();
    if names.contains(&word) || (word == kind && !names.is_empty()) {
        return Ok(());
    }
    if names.is_empty() {
        let mut kinds: Vec<&str> = NAMES.into_iter().map(kind_of).collect();
        kinds.dedup();
        return Err(format!("expected kinds ({}) or names such as job:completed, got {word:?}", kinds.join(", ")));
    }
    Err(format!("expected {kind} or one of {}, got {word:?}", names.join(", ")))
}

/// Returns `job` of `job:completed`.
fn kind_of(name: &str) -> &str {
    name.split(':').next().unwrap_or_default()
}

/// The events that a reader wants: all, or those of some kinds (`job`) or names (`job:completed`).
struct Filter(Option<HashSet<String>>);

impl Filter {
    fn wants(&self, name: &str) -> bool {
        let Some(wanted) = &self.0 else { return true };
        // The missed events may have been among the wanted ones.
        name == "lagged" || wanted.contains(name) || wanted.contains(kind_of(name))
    }
}

struct Board {
    receiver: broadcast::Receiver<Arc<Event>>,
    filter: Filter,
    closing: CancellationToken,
    _permit: OwnedSemaphorePermit,
}

#[derive(Serialize)]
struct Lagged {
    missed: u64,
}

/// The next item of a reader.
enum Noticed {
    Event(Arc<Event>),
    Missed(u64),
}

impl Board {
    async fn next(&mut self) -> Option<Sent> {
        Some(match self.notice().await? {
            Noticed::Event(event) => sent(event.name(), &*event),
            Noticed::Missed(missed) => sent("lagged", &Lagged { missed }),
        })
    }

    /// Returns the next event that the reader wants; `None` at the end of the stream.
    async fn notice(&mut self) -> Option<Noticed> {
        loop {
            let received = tokio::select! {
                received = self.receiver.recv() => received,
                () = self.closing.cancelled() => return None,
            };
            match received {
                Ok(event) if self.filter.wants(event.name()) => return Some(Noticed::Event(event)),
                Ok(_) => {}
                Err(RecvError::Lagged(missed)) => return Some(Noticed::Missed(missed)),
                Err(RecvError::Closed) => return None,
            }
        }
    }
}

/// Counts events and sends their numbers: the first at once, then at most once in `every`.
struct Digests {
    board: Board,
    every: Duration,
    sent_at: Option<Instant>,
}

/// The events of a time, by name.
#[derive(Default, Serialize)]
struct Digest {
    events: BTreeMap<&'static str, u64>,
    missed: u64,
}

impl Digest {
    fn add(&mut self, noticed: &Noticed) {
        match noticed {
            Noticed::Event(event) => *self.events.entry(event.name()).or_default() += 1,
            Noticed::Missed(missed) => self.missed += missed,
        }
    }
}

impl Digests {
    /// Sends digests until the client is gone. It is a task of its own: many events use up the share of time of the task
    /// that counts them, and the task of the connection would then never come to send what it has.
    async fn run(mut self, lines: mpsc::Sender<Result<Sent, Infallible>>) {
        loop {
            let sent = tokio::select! {
                sent = self.next() => sent,
                () = lines.closed() => return,
            };
            let Some(sent) = sent else { return };
            if lines.send(Ok(sent)).await.is_err() {
                return;
            }
        }
    }

    async fn next(&mut self) -> Option<Sent> {
        let mut digest = Digest::default();
        digest.add(&self.board.notice().await?);
        let due = self.sent_at.map(|at| at + self.every);
        while let Some(due) = due.filter(|due| *due > Instant::now()) {
            tokio::select! {
                noticed = self.board.notice() => digest.add(&noticed?),
                () = tokio::time::sleep_until(due) => break,
            }
        }
        self.sent_at = Some(Instant::now());
        Some(sent("digest", &digest))
    }
}

/// Follow the log of a job
///
/// Replays the recorded lines, then follows. Each line is a `log` event whose id is its `seq`: a reader that lost its
/// connection sends the last one in `Last-Event-ID` (or `after`) and misses nothing. Ends with `end` once the job has
/// ended.
#[utoipa::path(get, path = "/v1/jobs/{id}/logs/stream", tag = "jobs", params(doc::JobPath, doc::LogStreamParams), responses(
    (status = 200, body = String, content_type = "text/event-stream"),
    doc::Refused,
))]
async fn logs(
    State(state): State<AppState>,
    caller: Caller,
    Segment(id): Segment<JobId>,
    mut params: Params,
    headers: HeaderMap,
) -> ApiResult {
    let after = params.parse::<u64>("after")?;
    params.end()?;
    let after = last_event_id(&headers)?.or(after).unwrap_or(0);
    let permit = permit(&state)?;
    // A missing job is a 404, not a stream without end.
    state.coordinator.job(id, None).await?;
    let (lines, following) = mpsc::channel(LINES_BUFFERED);
    tokio::spawn(async move {
        let _permit = permit;
        Follower { state, caller, id, after, lines }.run().await;
    });
    Ok(stream_response(ReceiverStream::new(following)))
}

fn last_event_id(headers: &HeaderMap) -> ApiResult<Option<u64>> {
    let Some(value) = headers.get("last-event-id") else { return Ok(None) };
    let seq = value.to_str().ok().and_then(|text| text.parse().ok());
    seq.map(Some).ok_or_else(|| ApiError::invalid("last-event-id", format!("expected a line's seq, got {value:?}")))
}

struct Follower {
    state: AppState,
    caller: Caller,
    id: JobId,
    /// The last line that was sent.
    after: u64,
    lines: mpsc::Sender<Result<Sent, Infallible>>,
}

/// The reader has disconnected.
struct Gone;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct End {
    job_id: JobId,
    status: Option<Status>,
}

impl Follower {
    /// Sends lines until the job has ended and all are sent, the reader disconnects, or the server closes.
    async fn run(mut self) {
        let coordinator = self.state.coordinator.clone();
        let closing = self.state.closing.clone();
        let lines = self.lines.clone();
        let mut ended = Box::pin(wait(&coordinator, self.id));
        let mut pause = CHECK_INTERVAL_MIN;
        loop {
            match self.send_new().await {
                Err(Gone) => return,
                Ok(0) => pause = (pause * 2).min(CHECK_INTERVAL_MAX),
                Ok(_) => pause = CHECK_INTERVAL_MIN,
            }
            tokio::select! {
                job = &mut ended => {
                    // Its last lines were committed no later than its end: one more read returns them all.
                    if self.send_new().await.is_ok() {
                        let end = End { job_id: self.id, status: job.map(|job| job.status) };
                        let _ = self.lines.send(Ok(sent("end", &end))).await;
                    }
                    return;
                }
                () = tokio::time::sleep(pause) => {}
                () = lines.closed() => return,
                () = closing.cancelled() => return,
            }
        }
    }

    async fn send_new(&mut self) -> Result<usize, Gone> {
        let mut count = 0;
        loop {
            let page = match self.state.coordinator.store().logs(self.id, self.after, PAGE_MAX).await {
                Ok(page) => self.caller.shown(page),
                Err(error) => {
                    // The store is unavailable: new lines are still there when it is back.
                    tracing::debug!(%error, job = %self.id, "reading a job's log failed");
                    return Ok(count);
                }
            };
            for line in &page {
                self.send(line).await?;
            }
            count += page.len();
            if page.is_empty() {
                return Ok(count);
            }
        }
    }

    async fn send(&mut self, line: &LogLine) -> Result<(), Gone> {
        let sent = sent("log", line).id(line.seq.to_string());
        self.lines.send(Ok(sent)).await.map_err(|_| Gone)?;
        self.after = line.seq;
        Ok(())
    }
}

/// Returns the job once it has ended; `None` if it was deleted meanwhile.
async fn wait(coordinator: &convoke_runtime::jobs::Coordinator, id: JobId) -> Option<Job> {
    loop {
        match coordinator.job(id, Some(WAIT_MAX)).await {
            Ok(job) if !job.status.is_live() => return Some(job),
            Err(Error::NotFound { .. }) => return None,
            // Still live after the longest wait, or the store is unavailable.
            Ok(_) | Err(_) => tokio::time::sleep(CHECK_INTERVAL_MAX).await,
        }
    }
}

fn permit(state: &AppState) -> ApiResult<OwnedSemaphorePermit> {
    state.streams.clone().try_acquire_owned().map_err(|_| {
        let message = format!("expected at most {STREAMS_MAX} streams at once; try again when one has ended");
        ApiError::too_many(message)
    })
}

fn sent(name: &str, data: &impl Serialize) -> Sent {
    let text = serde_json::to_string(data).expect("events have string keys and no foreign Serialize");
    Sent::default().event(name).data(text)
}

fn stream_response(events: impl Stream<Item = Result<Sent, Infallible>> + Send + 'static) -> Response {
    Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response()
}
