use std::ops::{Add, Sub};
use std::time::Duration;

/// A moment of the monotonic clock, counted from wherever the caller began to count. Only moments of one caller compare.
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

    /// How long after `earlier` this is; nothing where it is not.
    fn sub(self, earlier: Moment) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}
