//! Adapters: one module and one feature per engine. None names another, nor the runtime.

#[cfg(feature = "gateway")]
pub mod gateway;
