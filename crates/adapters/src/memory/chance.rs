//! Chance: the machine's, or a test's.

use convoke_core::ports::Chance;
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// The random numbers of the machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemChance;

impl Chance for SystemChance {
    fn bits(&self) -> u64 {
        rand::random()
    }
}

/// Random numbers that the same seed repeats.
pub struct SeededChance(Mutex<StdRng>);

impl SeededChance {
    pub fn new(seed: u64) -> Self {
        SeededChance(Mutex::new(StdRng::seed_from_u64(seed)))
    }
}

impl Chance for SeededChance {
    fn bits(&self) -> u64 {
        self.0.lock().next_u64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_its_numbers_and_another_has_others() {
        let draw = |seed| {
            let chance = SeededChance::new(seed);
            [(); 8].map(|()| chance.bits())
        };
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
        assert_ne!(SystemChance.bits(), SystemChance.bits());
    }
}
