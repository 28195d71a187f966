//! One module and one feature for each engine that can stand behind a port. No module names another.

#[cfg(feature = "memory")]
pub mod memory;
#[cfg(feature = "sqlite")]
pub mod sqlite;
