use std::time::Duration;

use super::moment::Moment;
use super::settings::ContentionSettings;

/// Detects heartbeats that take much longer than their interval. Reports are rate-limited.
#[derive(Debug, Clone)]
pub struct ContentionWatch {
    settings: ContentionSettings,
    last: Option<Moment>,
}

/// A heartbeat that took too long.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Contention {
    /// How long it took.
    pub duration: Duration,
    /// The heartbeat interval.
    pub expected: Duration,
    /// `duration` divided by `expected`.
    pub ratio: f64,
    /// The ratio above which a heartbeat counts as contention.
    pub threshold: f64,
}

impl ContentionWatch {
    /// Returns a watch that has reported nothing yet.
    pub fn new(settings: ContentionSettings) -> Self {
        ContentionWatch { settings, last: None }
    }

    /// Checks a heartbeat that took `duration`; `expected` is its interval. `None` if it is below the threshold or a
    /// report was made recently.
    pub fn check(&mut self, duration: Duration, expected: Duration, now: Moment) -> Option<Contention> {
        let ContentionSettings { enabled, threshold, rate_limit } = self.settings;
        let ratio = duration.as_secs_f64() / expected.as_secs_f64().max(f64::EPSILON);
        let is_limited = self.last.is_some_and(|last| now - last < rate_limit);
        if !enabled || ratio <= threshold || is_limited {
            return None;
        }
        self.last = Some(now);
        Some(Contention { duration, expected, ratio, threshold })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_secs(5);

    #[test]
    fn only_what_exceeds_the_threshold_is_contention() {
        let now = Moment::default();
        let mut watch = ContentionWatch::new(ContentionSettings::default());
        assert_eq!(watch.check(INTERVAL * 2, INTERVAL, now), None);
        let found = watch.check(INTERVAL * 3, INTERVAL, now).expect("three times the interval");
        assert_eq!((found.ratio, found.threshold, found.expected), (3.0, 2.0, INTERVAL));
    }

    #[test]
    fn it_is_said_once_in_a_while() {
        let now = Moment::default();
        let mut watch = ContentionWatch::new(ContentionSettings::default());
        assert!(watch.check(INTERVAL * 3, INTERVAL, now).is_some());
        assert!(watch.check(INTERVAL * 3, INTERVAL, now + Duration::from_secs(29)).is_none());
        assert!(watch.check(INTERVAL * 3, INTERVAL, now + Duration::from_secs(30)).is_some());
    }

    #[test]
    fn it_can_be_switched_off() {
        let mut watch = ContentionWatch::new(ContentionSettings { enabled: false, ..ContentionSettings::default() });
        assert!(watch.check(INTERVAL * 9, INTERVAL, Moment::default()).is_none());
    }
}
