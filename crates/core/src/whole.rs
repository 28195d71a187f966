//! Whole numbers as JSON writes them: `5`, and also `5.0` or `5e0`, which are the same number.
//!
//! Some languages have one type of number only, and PostgreSQL's `jsonb` does not keep the difference.

use std::fmt;

use serde::de::{Deserializer, Error, Unexpected, Visitor};

/// Deserializes an optional whole number from 0 on.
pub fn option<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u32>, D::Error> {
    deserializer.deserialize_option(Whole)
}

struct Whole;

impl<'de> Visitor<'de> for Whole {
    type Value = Option<u32>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a whole number from 0 on")
    }

    fn visit_none<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(Whole)
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Self::Value, E> {
        u32::try_from(number).map(Some).map_err(|_| E::invalid_value(Unexpected::Unsigned(number), &self))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Self::Value, E> {
        u32::try_from(number).map(Some).map_err(|_| E::invalid_value(Unexpected::Signed(number), &self))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Self::Value, E> {
        if number.fract() != 0.0 || !(0.0..=f64::from(u32::MAX)).contains(&number) {
            return Err(E::invalid_value(Unexpected::Float(number), &self));
        }
        // In range and without a fraction: exact.
        Ok(Some(number as u32))
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, PartialEq, Deserialize)]
    struct Holder(#[serde(deserialize_with = "option")] Option<u32>);

    fn read(text: &str) -> Option<Option<u32>> {
        serde_json::from_str::<Holder>(text).ok().map(|holder| holder.0)
    }

    #[test]
    fn a_number_is_whole_however_it_is_written() {
        for text in ["5", "5.0", "5e0", "0.5e1"] {
            assert_eq!(read(text), Some(Some(5)), "{text}");
        }
        assert_eq!((read("-0"), read("null")), (Some(Some(0)), Some(None)));
    }

    #[test]
    fn a_fraction_a_negative_number_and_a_text_are_rejected() {
        for text in ["5.5", "-1", "-1.0", "4294967296", "4294967296.0", "1e300", "\"5\"", "true", "[5]"] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
