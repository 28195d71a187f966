//! The values that a worker shares with its handlers, by type.

use std::any::{Any, TypeId, type_name};
use std::collections::HashMap;
use std::fmt;

/// A value that a handler takes and that its worker does not have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the worker has no state of the type {type_name}: add it by .state(…)")]
#[non_exhaustive]
pub struct MissingState {
    /// The name of the type.
    pub type_name: &'static str,
}

/// The values that [`Worker::state`](crate::Worker::state) added, one of each type.
#[derive(Default)]
pub struct StateMap {
    values: HashMap<TypeId, Box<dyn Any + Send + Sync>>,
}

impl StateMap {
    pub(crate) fn insert<T: Send + Sync + 'static>(&mut self, value: T) {
        self.values.insert(TypeId::of::<T>(), Box::new(value));
    }

    /// Returns the value of the type `T`.
    pub fn get<T: Send + Sync + 'static>(&self) -> Result<&T, MissingState> {
        let value = self.values.get(&TypeId::of::<T>()).and_then(|value| value.downcast_ref());
        value.ok_or(MissingState { type_name: type_name::<T>() })
    }
}

impl fmt::Debug for StateMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StateMap").field("values", &self.values.len()).finish()
    }
}
