use serde::Serialize;
use serde::de::DeserializeOwned;

/// A kind of work: its arguments are the type's fields, its result the `Output`.
pub trait Job: Serialize + DeserializeOwned + Send + 'static {
    /// The name that the coordinator and workers in other languages know it by.
    const TYPE: &'static str;
    type Output: Serialize + DeserializeOwned + Send + 'static;
}
