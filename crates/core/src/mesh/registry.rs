//! The handlers by type.

use std::collections::BTreeMap;

/// The handlers of requests or broadcasts, one per type. A later registration replaces an earlier one.
#[derive(Debug)]
pub struct Registry<H>(BTreeMap<Box<str>, H>);

impl<H> Default for Registry<H> {
    fn default() -> Self {
        Registry(BTreeMap::new())
    }
}

impl<H: Clone> Registry<H> {
    /// Registers a handler for a type.
    pub fn set(&mut self, kind: &str, handler: H) {
        self.0.insert(kind.into(), handler);
    }

    /// Returns the handler of a type. A later replacement does not affect the returned one.
    pub fn find(&self, kind: &str) -> Option<H> {
        self.0.get(kind).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_one_given_for_a_type_wins() {
        let mut registry = Registry::default();
        registry.set("a", 1);
        registry.set("b", 2);
        registry.set("a", 3);
        assert_eq!(["a", "b", "c"].map(|kind| registry.find(kind)), [Some(3), Some(2), None]);
    }
}
