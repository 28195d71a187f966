use jiff::Timestamp;

/// Wall time, to the microsecond: what every store can keep, so that what is answered now reads the same later. Monotonic
/// time is tokio's, so that tests can pause it.
pub trait Clock: Send + Sync {
    fn now(&self) -> Timestamp;
}
