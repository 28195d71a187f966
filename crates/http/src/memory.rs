//! Memory of bodies, bounded over all connections.
//!
//! A request's body counts from the arrival of its bytes until the response is ready; a response's from before it is
//! read from the store until its client has read it. Beyond the bounds a request waits for a moment, then is rejected
//! with 503 and `Retry-After`. Responses are passed to the connection in small frames, so that an unread one is not
//! copied into its buffers, and have a deadline: a client that reads too slowly loses its connection instead of holding
//! the memory.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::extract::FromRequestParts;
use axum::response::Response;
use bytes::Bytes;
use convoke_core::limits::PAGE_BYTES_MAX;
use http::StatusCode;
use http::request::Parts;
use hyper::body::{Frame, SizeHint};
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::error::{ApiError, ApiResult};

/// Bodies of requests that are being read or served, in bytes.
pub const REQUEST_BYTES_MAX: usize = 128 << 20;
/// Pages of lists and histories that are being made or read by their clients, in bytes.
pub const PAGES_BYTES_MAX: usize = 64 << 20;
/// All other responses that are being made or read, in bytes: a flood of slow lists must not reject these.
pub const RESPONSE_BYTES_MAX: usize = 64 << 20;
/// Bytes that one permit of the semaphores stands for.
const UNIT_BYTES: usize = 1 << 10;
/// How long a request waits for memory.
const WAIT_MAX: Duration = Duration::from_secs(5);
/// Size of the frames in which a response is passed to its connection. A smaller response is not counted.
const FRAME_BYTES: usize = 64 << 10;
/// How long a client may take to read a response: this, and a second for every [`READ_BYTES_PER_SECOND`].
const READ_TIMEOUT: Duration = Duration::from_secs(30);
const READ_BYTES_PER_SECOND: usize = 64 << 10;

/// The memory of all bodies of a server.
pub struct Memory {
    requests: Arc<Semaphore>,
    pages: Arc<Semaphore>,
    responses: Arc<Semaphore>,
}

impl Default for Memory {
    fn default() -> Self {
        let pool = |bytes: usize| Arc::new(Semaphore::new(bytes / UNIT_BYTES));
        Memory { requests: pool(REQUEST_BYTES_MAX), pages: pool(PAGES_BYTES_MAX), responses: pool(RESPONSE_BYTES_MAX) }
    }
}

/// The share of one request. Clones are the same share; the last one releases it.
#[derive(Clone, Default)]
pub struct Share(Arc<Held>);

#[derive(Default)]
struct Held {
    memory: Arc<Memory>,
    request: Mutex<Option<OwnedSemaphorePermit>>,
    response: Mutex<Option<OwnedSemaphorePermit>>,
}

impl Share {
    pub fn of(memory: &Arc<Memory>) -> Self {
        Share(Arc::new(Held { memory: memory.clone(), ..Held::default() }))
    }

    /// Counts a part of the request's body that has arrived.
    pub fn admit(&self, bytes: usize) -> ApiResult<()> {
        let permit = self.0.memory.requests.clone().try_acquire_many_owned(units(bytes));
        let permit = permit.map_err(|_| {
            exhausted(format!("requests of {REQUEST_BYTES_MAX} bytes are in flight; try again when some have ended"))
        })?;
        add(&mut self.0.request.lock(), permit);
        Ok(())
    }

    /// Waits for memory for a response of at most so many bytes.
    pub async fn reserve(&self, bytes: usize) -> ApiResult<()> {
        self.reserve_in(&self.0.memory.responses, bytes, RESPONSE_BYTES_MAX).await
    }

    /// Waits for memory for a page of a list or a history.
    pub async fn reserve_page(&self) -> ApiResult<()> {
        self.reserve_in(&self.0.memory.pages, PAGE_BYTES_MAX, PAGES_BYTES_MAX).await
    }

    async fn reserve_in(&self, pool: &Arc<Semaphore>, bytes: usize, bytes_max: usize) -> ApiResult<()> {
        match tokio::time::timeout(WAIT_MAX, pool.clone().acquire_many_owned(units(bytes))).await {
            Ok(Ok(permit)) => {
                add(&mut self.0.response.lock(), permit);
                Ok(())
            }
            _ => Err(exhausted(format!(
                "responses of {bytes_max} bytes are being made or wait for their clients to read them; try again later"
            ))),
        }
    }

    /// Counts the response by its real size, until it was read.
    pub fn finish(self, response: Response) -> Response {
        self.0.request.lock().take();
        let Some(bytes) = response.body().size_hint().exact().filter(|bytes| *bytes > FRAME_BYTES as u64) else {
            return response;
        };
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        self.release_unused(units(bytes));
        let timeout = READ_TIMEOUT + Duration::from_secs((bytes / READ_BYTES_PER_SECOND) as u64);
        let deadline = Instant::now() + timeout;
        response.map(|body| Body::new(Counted { body, frame: Bytes::new(), deadline, _share: self }))
    }

    /// Releases reserved memory that is not needed. A response that is larger than its reservation takes what is free:
    /// it has been made already.
    fn release_unused(&self, needed: u32) {
        let mut held = self.0.response.lock();
        let has = held.as_ref().map_or(0, |permit| permit.num_permits());
        let needed = needed as usize;
        if has > needed {
            held.as_mut().and_then(|permit| permit.split(has - needed));
        } else {
            let pool = held.as_ref().map_or(&self.0.memory.responses, |permit| permit.semaphore()).clone();
            let more = (needed - has).min(pool.available_permits());
            if let Ok(permit) = pool.try_acquire_many_owned(u32::try_from(more).unwrap_or(u32::MAX)) {
                add(&mut held, permit);
            }
        }
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Share {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        Ok(parts.extensions.get::<Share>().cloned().unwrap_or_default())
    }
}

fn units(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(UNIT_BYTES)).unwrap_or(u32::MAX)
}

fn add(held: &mut Option<OwnedSemaphorePermit>, permit: OwnedSemaphorePermit) {
    match held {
        Some(held) => held.merge(permit),
        None => *held = Some(permit),
    }
}

fn exhausted(message: String) -> ApiError {
    ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", message)
}

/// A body that is counted until it was read.
struct Counted {
    body: Body,
    /// The rest of the body's last frame.
    frame: Bytes,
    deadline: Instant,
    _share: Share,
}

impl HttpBody for Counted {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if Instant::now() > self.deadline {
            return Poll::Ready(Some(Err(axum::Error::new("the response was read too slowly"))));
        }
        if self.frame.is_empty() {
            match std::task::ready!(Pin::new(&mut self.body).poll_frame(context)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => self.frame = data,
                    Err(other) => return Poll::Ready(Some(Ok(other))),
                },
                other => return Poll::Ready(other),
            }
        }
        let bytes = self.frame.len().min(FRAME_BYTES);
        Poll::Ready(Some(Ok(Frame::data(self.frame.split_to(bytes)))))
    }

    fn is_end_stream(&self) -> bool {
        self.frame.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        match self.body.size_hint().exact() {
            Some(bytes) => SizeHint::with_exact(bytes + self.frame.len() as u64),
            None => SizeHint::default(),
        }
    }
}
