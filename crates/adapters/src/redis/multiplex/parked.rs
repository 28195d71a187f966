//! Bells for jobs that are not read here (yet).
//!
//! A job's first events often arrive before its claim. Its bell is kept for a while, so that the claim finds that there
//! is something to read at once. Dropping a bell costs only a short delay: a channel that is added is read soon in any
//! case. Two generations, the older of which is dropped whole, keep this small and cheap.

use std::collections::HashSet;
use std::time::Duration;

use tokio::time::Instant;

use super::readings::Channel;

const GENERATION_MAX: usize = 50_000;
const GENERATION_AGE_MAX: Duration = Duration::from_secs(30);

pub(super) struct Parked {
    young: HashSet<Channel>,
    old: HashSet<Channel>,
    since: Instant,
}

impl Parked {
    pub(super) fn new(now: Instant) -> Self {
        Parked { young: HashSet::new(), old: HashSet::new(), since: now }
    }

    pub(super) fn park(&mut self, channel: Channel, now: Instant) {
        if self.young.len() >= GENERATION_MAX || now.duration_since(self.since) >= GENERATION_AGE_MAX {
            self.old = std::mem::take(&mut self.young);
            self.since = now;
        }
        self.young.insert(channel);
    }

    pub(super) fn take(&mut self, channel: &Channel) -> bool {
        // Removes from both: a bell may have arrived in either generation.
        self.young.remove(channel) | self.old.remove(channel)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.young.len() + self.old.len()
    }
}

#[cfg(test)]
mod tests {
    use convoke_core::JobId;
    use convoke_core::jobs::channels::JobChannel;

    use super::*;

    fn channel(n: usize) -> Channel {
        (JobId(uuid::Uuid::from_u128(n as u128)), JobChannel::Status)
    }

    #[test]
    fn a_bell_is_kept_for_a_while_and_found_once() {
        let mut now = Instant::now();
        let mut parked = Parked::new(now);
        parked.park(channel(1), now);
        now += GENERATION_AGE_MAX;
        parked.park(channel(2), now);
        assert!(parked.take(&channel(1)), "the older generation counts");
        assert!(!parked.take(&channel(1)));
        now += GENERATION_AGE_MAX;
        parked.park(channel(3), now);
        now += GENERATION_AGE_MAX;
        parked.park(channel(4), now);
        assert!(!parked.take(&channel(2)), "but not for ever");
        assert!(parked.take(&channel(3)) && parked.take(&channel(4)));
    }

    #[test]
    fn however_many_ring_few_are_kept() {
        let now = Instant::now();
        let mut parked = Parked::new(now);
        (0..10 * GENERATION_MAX).for_each(|n| parked.park(channel(n), now));
        assert!(parked.len() <= 2 * GENERATION_MAX);
        assert!(parked.take(&channel(10 * GENERATION_MAX - 1)), "the latest are");
    }
}
