//! The handlers of requests and broadcasts, by type.
//!
//! Handlers may be added and replaced while the instance runs; the last one for a type wins. A running request keeps
//! the handler that it began with.

use std::pin::Pin;
use std::sync::Arc;

use convoke_core::Json;
use convoke_core::mesh::{EpochFloor, Fault, InstanceId, Registry};
use parking_lot::RwLock;

use super::context::Context;

/// The work of a request handler: its result is the reply's data or a fault.
pub type HandlerFuture = Pin<Box<dyn Future<Output = Result<Json, Fault>> + Send>>;
/// The work of a broadcast handler.
pub type BroadcastFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

type RequestHandler = dyn Fn(Context, String) -> HandlerFuture + Send + Sync;
pub(super) type BroadcastHandler = dyn Fn(InstanceId, String) -> BroadcastFuture + Send + Sync;

/// Requirements of a handler on its callers.
#[derive(Debug, Clone, Default)]
pub struct Demand {
    /// Rejects callers with a lower epoch, and callers without an epoch.
    pub epoch: Option<EpochFloor>,
}

pub(super) struct Handler {
    pub request_type: Arc<str>,
    pub demand: Demand,
    pub call: Box<RequestHandler>,
}

/// The registered handlers of an instance.
#[derive(Default)]
pub struct Handlers {
    by_type: RwLock<Registry<Arc<Handler>>>,
    broadcast_handlers: RwLock<Registry<Arc<BroadcastHandler>>>,
}

impl Handlers {
    /// Registers a handler for requests of a type; their data is JSON text.
    pub fn on<F>(&self, request_type: &str, demand: Demand, call: F)
    where
        F: Fn(Context, String) -> HandlerFuture + Send + Sync + 'static,
    {
        let handler = Handler { request_type: request_type.into(), demand, call: Box::new(call) };
        self.by_type.write().set(request_type, Arc::new(handler));
    }

    /// Registers a handler for broadcasts of a type; it receives the sender and the data.
    pub fn on_broadcast<F>(&self, broadcast_type: &str, broadcast_handler: F)
    where
        F: Fn(InstanceId, String) -> BroadcastFuture + Send + Sync + 'static,
    {
        self.broadcast_handlers.write().set(broadcast_type, Arc::new(broadcast_handler));
    }

    pub(super) fn find(&self, request_type: &str) -> Option<Arc<Handler>> {
        self.by_type.read().find(request_type)
    }

    pub(super) fn find_broadcast_handler(&self, broadcast_type: &str) -> Option<Arc<BroadcastHandler>> {
        self.broadcast_handlers.read().find(broadcast_type)
    }
}
