use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::ids::Epoch;

/// The number of an assignment of shards: the fence of a shard. Rises with every change of who owns what in a service, and
/// stays below 2^53, so that every reader of JSON reads it exactly.
// Each term of leadership has `Version::PER_TERM` numbers of its own: that makes those of a later term higher although
// nothing is written down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(transparent)]
pub struct Version(pub u64);

impl Version {
    /// Whole in a double.
    pub const MAX: Version = Version((1 << 53) - 1);
    /// A worker that reports a higher one is not believed: what is left above it is for those who were.
    pub const BELIEVED_MAX: Version = Version((1 << 53) - (1 << 32));
    /// Changes that a service may see in one term. After that the term should end: the next has room again.
    pub const PER_TERM: u64 = 1 << 22;
    /// 2020-01-01: counted from here, seconds with room for a term each last until 2088.
    const SECONDS_FROM: i64 = 1_577_836_800;

    /// Where the versions of a term begin whose epochs outlive the process.
    pub fn of_term(epoch: Epoch) -> Version {
        Version(epoch.0.saturating_mul(Self::PER_TERM)).min(Self::BELIEVED_MAX)
    }

    /// Where they begin when epochs start from one again, or are no count of terms: the time takes their place.
    pub fn of_moment(now: Timestamp) -> Version {
        let seconds = u64::try_from(now.as_second() - Self::SECONDS_FROM).unwrap_or(0);
        Self::of_term(Epoch(seconds))
    }

    /// The term that it is of, as far as versions tell.
    pub fn term(self) -> u64 {
        self.0 / Self::PER_TERM
    }

    pub fn next(self) -> Version {
        Version(self.0 + 1)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_term_begins_above_all_of_an_earlier_one() {
        let (third, fourth) = (Version::of_term(Epoch(3)), Version::of_term(Epoch(4)));
        assert!(fourth.0 - third.0 >= Version::PER_TERM);
        assert!(Version::of_term(Epoch(u64::MAX)) <= Version::BELIEVED_MAX);
    }

    #[test]
    fn without_lasting_epochs_a_later_start_begins_above() {
        let at = |text: &str| text.parse::<Timestamp>().expect("a time");
        let (before, after) = (at("2026-05-01T00:00:00Z"), at("2026-05-01T00:00:01Z"));
        assert!(Version::of_moment(after).0 - Version::of_moment(before).0 >= Version::PER_TERM);
        assert!(Version::of_moment(at("2085-01-01T00:00:00Z")) < Version::BELIEVED_MAX);
        assert_eq!(Version::of_moment(at("1970-01-01T00:00:00Z")), Version(0));
    }
}
