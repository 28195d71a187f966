//! Chance: the source of random numbers and ids.

use jiff::Timestamp;
use uuid::{Builder, Uuid};

/// A source of random numbers. A test seeds it, so that what it saw happens again.
pub trait Chance: Send + Sync {
    /// Returns 64 random bits.
    fn bits(&self) -> u64;
}

impl dyn Chance + '_ {
    /// Returns a number from 0 to below 1.
    pub fn fraction(&self) -> f64 {
        // As many bits as the number holds.
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Returns an id that contains the time.
    pub fn id(&self, at: Timestamp) -> Uuid {
        pack(self.draw(at))
    }

    /// Returns the number of a new id: milliseconds, then 74 random bits.
    fn draw(&self, at: Timestamp) -> u128 {
        let ms = u64::try_from(at.as_millisecond()).unwrap_or(0);
        let random = (u128::from(self.bits()) << 64 | u128::from(self.bits())) >> 54;
        u128::from(ms) << RANDOM_BITS | random
    }
}

/// The random bits of an id.
const RANDOM_BITS: u32 = 74;

/// Returns the UUID of version 7 with these milliseconds and bits.
fn pack(number: u128) -> Uuid {
    let ms = (number >> RANDOM_BITS) as u64;
    let (high, low) = ((number >> 62) as u16 & 0x0fff, number as u64 & (u64::MAX >> 2));
    let mut bytes = [0; 10];
    bytes[..2].copy_from_slice(&high.to_be_bytes());
    bytes[2..].copy_from_slice(&low.to_be_bytes());
    Builder::from_unix_timestamp_millis(ms, &bytes).into_uuid()
}

/// Ids that rise, also within a millisecond, and also if the clock is set back.
#[derive(Debug, Default)]
pub struct RisingIds {
    last: u128,
}

impl RisingIds {
    /// Returns an id above all that it returned before.
    pub fn next(&mut self, at: Timestamp, chance: &dyn Chance) -> Uuid {
        let drawn = chance.draw(at);
        // A random step, so that ids cannot be guessed from others.
        self.last = if drawn > self.last { drawn } else { self.last + 1 + u128::from(chance.bits() >> 32) };
        pack(self.last)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    struct Counter(AtomicU64);

    impl Chance for Counter {
        fn bits(&self) -> u64 {
            self.0.fetch_add(1, Ordering::Relaxed).wrapping_mul(0x9e37_79b9_7f4a_7c15)
        }
    }

    #[test]
    fn an_id_contains_its_time_and_is_of_version_seven() {
        let chance: &dyn Chance = &Counter(AtomicU64::new(1));
        let at: Timestamp = "2030-01-01T00:00:00.123Z".parse().expect("a time");
        let id = chance.id(at);
        assert_eq!((id.get_version_num(), id.get_variant()), (7, uuid::Variant::RFC4122));
        assert_eq!(crate::ExecutionId(id).minted_at(), Some(at));
    }

    #[test]
    fn ids_rise_within_a_millisecond_and_when_the_clock_is_set_back() {
        let chance: &dyn Chance = &Counter(AtomicU64::new(1));
        let mut ids = RisingIds::default();
        let ids: Vec<Uuid> = (0..10_000i64)
            .map(|n| ids.next(Timestamp::from_millisecond(1_000_000 - n / 100).expect("a time"), chance))
            .collect();
        assert!(ids.windows(2).all(|pair| pair[0] < pair[1]));
        assert!(ids.iter().all(|id| id.get_version_num() == 7));
    }

    #[test]
    fn a_fraction_is_below_one() {
        struct Ones;
        impl Chance for Ones {
            fn bits(&self) -> u64 {
                u64::MAX
            }
        }
        let ones: &dyn Chance = &Ones;
        assert!(ones.fraction() < 1.0 && ones.fraction() > 0.999_999);
    }
}
