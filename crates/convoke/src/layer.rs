//! Layers of `tower` around the handlers of a worker.
//!
//! The handler is the innermost [`Service`] of a [`Run`]. A layer may answer for it, change its arguments, end it after a
//! time or record it. A worker without layers calls its handlers directly. With layers, every call of
//! [`Worker::layer`](crate::Worker::layer) costs each run one more boxed future; a `ServiceBuilder` makes one of several.
//!
//! As in `axum`, readiness of a service is awaited inside the call: a layer does not see that of layers which another
//! call added.

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};

use convoke_core::Json;
use convoke_runtime::jobs::worker::{Failure, HandlerFuture};
use tower_layer::Layer;
use tower_service::Service;

use crate::error::{Error, Source, failure};
use crate::run::Run;

/// The service that a layer wraps: the handler of the run, or another layer around it.
#[derive(Clone, Default)]
pub struct RunService {
    /// The layers inside; `None` for the handler itself.
    layered: Option<Arc<dyn Layered>>,
}

trait Layered: Send + Sync {
    fn call(&self, run: Run) -> HandlerFuture;
}

impl RunService {
    pub(crate) fn layer<L>(self, layer: &L) -> RunService
    where
        L: Layer<RunService>,
        L::Service: Service<Run, Response = Option<Json>> + Clone + Send + Sync + 'static,
        <L::Service as Service<Run>>::Error: Into<Source>,
        <L::Service as Service<Run>>::Future: Send + 'static,
    {
        RunService { layered: Some(Arc::new(Erased(layer.layer(self)))) }
    }

    /// Calls the layers from the outside to the inside, and then the handler.
    pub(crate) fn run(&self, run: Run) -> HandlerFuture {
        match &self.layered {
            Some(layered) => layered.call(run),
            None => run.call(),
        }
    }
}

fn failed(error: impl Into<Source>) -> Failure {
    failure::<Source>(error.into())
}

struct Erased<S>(S);

impl<S> Layered for Erased<S>
where
    S: Service<Run, Response = Option<Json>> + Clone + Send + Sync + 'static,
    S::Error: Into<Source>,
    S::Future: Send + 'static,
{
    fn call(&self, run: Run) -> HandlerFuture {
        // Runs go on at the same time: each has its own copy of the service.
        let mut service = self.0.clone();
        Box::pin(async move {
            poll_fn(|cx| service.poll_ready(cx)).await.map_err(failed)?;
            service.call(run).await.map_err(failed)
        })
    }
}

impl Service<Run> for RunService {
    /// The result of the job.
    type Response = Option<Json>;
    type Error = Error;
    type Future = RunFuture;

    fn poll_ready(&mut self, _: &mut TaskContext<'_>) -> Poll<Result<(), Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, run: Run) -> RunFuture {
        RunFuture(self.run(run))
    }
}

impl fmt::Debug for RunService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunService").field("layered", &self.layered.is_some()).finish()
    }
}

/// The future of a [`RunService`].
#[must_use = "a future does nothing until it is polled"]
pub struct RunFuture(HandlerFuture);

impl Future for RunFuture {
    type Output = Result<Option<Json>, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<Self::Output> {
        self.0.as_mut().poll(cx).map_err(|Failure { error, retry }| Error::Failed { message: error, retry })
    }
}

impl fmt::Debug for RunFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunFuture").finish_non_exhaustive()
    }
}
