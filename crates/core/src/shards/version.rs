use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::ids::Epoch;

/// The number of an assignment of shards: the fence of a shard. It rises with every change of ownership in a service,
/// and stays below 2^53, so that every JSON reader can read it exactly.
// Each term of leadership has its own range of `Version::PER_TERM` numbers, so that those of a later term are higher
// although nothing is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(transparent)]
pub struct Version(pub u64);

impl Version {
    /// The highest number that a double holds exactly.
    pub const MAX: Version = Version((1 << 53) - 1);
    /// Upper bound of a version that is accepted from a worker's report; the range above it leaves room to continue
    /// from it.
    pub const BELIEVED_MAX: Version = Version((1 << 53) - (1 << 32));
    /// Changes of one service per term. After that the term should end: the next one has a new range.
    pub const PER_TERM: u64 = 1 << 22;
    /// 2020-01-01: counted from here, one range per second lasts until 2088.
    const SECONDS_FROM: i64 = 1_577_836_800;

    /// Returns the first version of a term, if epochs outlive the process.
    pub fn of_term(epoch: Epoch) -> Version {
        Version(epoch.0.saturating_mul(Self::PER_TERM)).min(Self::BELIEVED_MAX)
    }

    /// Returns the first version of a term from the time, if epochs begin again at 1 or do not count terms.
    pub fn of_moment(now: Timestamp) -> Version {
        let seconds = u64::try_from(now.as_second() - Self::SECONDS_FROM).unwrap_or(0);
        Self::of_term(Epoch(seconds))
    }

    /// Returns the number of the range that it is in.
    pub fn term(self) -> u64 {
        self.0 / Self::PER_TERM
    }

    /// Returns the next version.
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
