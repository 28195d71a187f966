//! Decides how many entries to request from Redis, so that the reply fits a limit in bytes.
//!
//! Redis limits a read by the number of entries only. So the size of recent entries decides how many are requested
//! next: few at first, more if they are small. A read exceeds its limit by as much as sizes change from one read to the
//! next.

use std::sync::atomic::{AtomicUsize, Ordering};

use convoke_core::limits::TAKE_BYTES_MAX;

/// The assumed size of an entry until some have arrived.
const FIRST_BYTES: usize = 512 << 10;
/// The largest factor by which the estimate shrinks at once.
const SHRINK_MAX: usize = 8;

pub(super) struct EntrySizes(AtomicUsize);

impl Default for EntrySizes {
    fn default() -> Self {
        EntrySizes(AtomicUsize::new(FIRST_BYTES))
    }
}

impl EntrySizes {
    /// Returns how many entries fit one read: at least one.
    pub(super) fn fitting(&self) -> usize {
        self.fitting_in(TAKE_BYTES_MAX)
    }

    /// Returns how many entries fit so many bytes: at least one.
    pub(super) fn fitting_in(&self, bytes: usize) -> usize {
        (bytes / self.0.load(Ordering::Relaxed).max(1)).max(1)
    }

    /// Records the sizes of entries that arrived.
    pub(super) fn observe(&self, sizes: impl Iterator<Item = usize>) {
        let (count, bytes) = sizes.fold((0, 0), |(count, bytes): (usize, usize), size| (count + 1, bytes + size));
        if let Some(mean) = bytes.checked_div(count) {
            let before = self.0.load(Ordering::Relaxed);
            self.0.store(mean.max(before / SHRINK_MAX).max(1), Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_entries_are_soon_read_by_the_thousand_and_large_ones_by_the_few() {
        let sizes = EntrySizes::default();
        let mut fitting = Vec::new();
        for _ in 0..5 {
            fitting.push(sizes.fitting());
            sizes.observe([100, 300].into_iter());
        }
        assert_eq!(fitting, [16, 128, 1_024, 8_192, 41_943]);
        sizes.observe([1 << 20].into_iter());
        assert_eq!(sizes.fitting(), 8);
        sizes.observe(std::iter::empty());
        assert_eq!(sizes.fitting(), 8, "nothing came");
        sizes.observe([1 << 30].into_iter());
        assert_eq!(sizes.fitting(), 1);
    }
}
