use std::ops::{Add, Sub};
use std::time::Duration;

/// A moment of the monotonic clock, counted from an origin that the caller chooses. Only moments with the same origin
/// compare.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(pub Duration);

impl Add<Duration> for Moment {
    type Output = Moment;

    fn add(self, duration: Duration) -> Moment {
        Moment(self.0.saturating_add(duration))
    }
}

impl Sub for Moment {
    type Output = Duration;

    /// Returns how long after `earlier` this is; zero if it is not after it.
    fn sub(self, earlier: Moment) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}
