//! One module and one feature for each engine that can stand behind a port. No module names another, nor the runtime.

#[cfg(feature = "gateway")]
pub mod gateway;
#[cfg(feature = "memory")]
pub mod memory;
