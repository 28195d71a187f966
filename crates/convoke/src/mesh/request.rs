//! What instances say to each other.

use serde::Serialize;
use serde::de::DeserializeOwned;

/// A request: its data, what it is called on the wire, and what answers it.
pub trait Request: Serialize + DeserializeOwned + Send + 'static {
    /// 1 to 255 bytes.
    const TYPE: &'static str;
    type Response: Serialize + DeserializeOwned + Send + 'static;
}

/// What is told to everybody and answered by nobody.
pub trait Broadcast: Serialize + DeserializeOwned + Send + 'static {
    /// 1 to 255 bytes.
    const TYPE: &'static str;
}
