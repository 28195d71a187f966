//! The types of requests and broadcasts.

use serde::Serialize;
use serde::de::DeserializeOwned;

/// A request: its data, its name on the wire, and the type of the reply.
pub trait Request: Serialize + DeserializeOwned + Send + 'static {
    /// The name on the wire, 1 to 255 bytes.
    const TYPE: &'static str;
    /// The type of the reply.
    type Response: Serialize + DeserializeOwned + Send + 'static;
}

/// A message to every instance, without a reply.
pub trait Broadcast: Serialize + DeserializeOwned + Send + 'static {
    /// The name on the wire, 1 to 255 bytes.
    const TYPE: &'static str;
}
