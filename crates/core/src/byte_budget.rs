//! A bound in bytes beside a bound in count.

/// Admits items in order until their bytes reach the budget. The first item is always admitted, however large, so that
/// it is not stuck for ever. After one rejected item all later ones are rejected.
#[derive(Debug, Clone)]
pub struct ByteBudget {
    left: usize,
    is_unused: bool,
}

impl ByteBudget {
    /// Returns an unused budget of so many bytes.
    pub fn new(bytes_max: usize) -> Self {
        ByteBudget { left: bytes_max, is_unused: true }
    }

    /// Returns whether an item of so many bytes fits. Subtracts it from the budget if it does.
    pub fn admits(&mut self, bytes: usize) -> bool {
        let fits = bytes <= self.left || self.is_unused;
        self.left = if fits { self.left.saturating_sub(bytes) } else { 0 };
        self.is_unused = false;
        fits
    }

    /// Returns whether the budget is exhausted.
    pub fn is_used_up(&self) -> bool {
        self.left == 0 && !self.is_unused
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_are_admitted_until_the_budget_is_reached() {
        let mut budget = ByteBudget::new(10);
        let admitted = [4, 6, 1].map(|bytes| budget.admits(bytes));
        assert_eq!(admitted, [true, true, false]);
        assert!(budget.is_used_up());
    }

    #[test]
    fn the_first_item_is_admitted_however_large() {
        let mut budget = ByteBudget::new(10);
        assert!(!budget.is_used_up());
        assert_eq!([11, 1].map(|bytes| budget.admits(bytes)), [true, false]);
    }

    #[test]
    fn a_small_item_does_not_overtake_one_that_did_not_fit() {
        let mut budget = ByteBudget::new(10);
        assert_eq!([5, 6, 5].map(|bytes| budget.admits(bytes)), [true, false, false]);
    }
}
