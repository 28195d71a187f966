use jiff::Timestamp;

/// Wall time. Monotonic time is tokio's, so that tests can pause it.
pub trait Clock: Send + Sync {
    fn now(&self) -> Timestamp;
}
