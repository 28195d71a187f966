use serde::Serialize;
use serde::de::DeserializeOwned;

/// A job type: its fields are the arguments, `Output` is the result.
pub trait Job: Serialize + DeserializeOwned + Send + 'static {
    /// The name of the type for the coordinator and for workers in other languages.
    const TYPE: &'static str;
    /// The type of the result. `()` for none.
    type Output: Serialize + DeserializeOwned + Send + 'static;
}
