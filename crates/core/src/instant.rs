//! Instants as clients write them: RFC 3339, such as `2030-01-31T09:00:00Z`.
//!
//! A text that is no instant, or is out of range, is rejected with an error that contains the text and an accepted
//! example.

use jiff::Timestamp;

/// Parses an RFC 3339 instant.
pub fn parse(text: &str) -> Result<Timestamp, String> {
    text.parse().map_err(|_| {
        let latest = Timestamp::from_second(Timestamp::MAX.as_second()).unwrap_or(Timestamp::MAX);
        format!("expected an instant such as \"2030-01-31T09:00:00Z\", {latest} at the latest, got {text:?}")
    })
}

/// Serde functions of an optional instant, for `#[serde(with = "crate::instant::option")]`.
pub mod option {
    use jiff::Timestamp;
    use serde::de::{Deserializer, Error, Visitor};
    use serde::{Serialize, Serializer};

    /// Serializes as RFC 3339 text or `null`.
    pub fn serialize<S: Serializer>(at: &Option<Timestamp>, serializer: S) -> Result<S::Ok, S::Error> {
        at.serialize(serializer)
    }

    /// Deserializes from RFC 3339 text or `null`.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Timestamp>, D::Error> {
        deserializer.deserialize_option(Optional)
    }

    struct Optional;

    impl<'de> Visitor<'de> for Optional {
        type Value = Option<Timestamp>;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("an instant such as \"2030-01-31T09:00:00Z\"")
        }

        fn visit_none<E>(self) -> Result<Self::Value, E> {
            Ok(None)
        }

        fn visit_unit<E>(self) -> Result<Self::Value, E> {
            Ok(None)
        }

        fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
            deserializer.deserialize_str(Optional)
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
            super::parse(text).map(Some).map_err(E::custom)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instant_is_read_in_any_zone() {
        for text in ["2026-03-01T13:00:00Z", "2026-03-01T15:00:00+02:00", "2026-03-01t13:00:00.000000z"] {
            assert_eq!(parse(text).map(|at| at.to_string()).as_deref(), Ok("2026-03-01T13:00:00Z"), "{text}");
        }
        assert!(parse("9999-12-30T22:00:00Z").is_ok(), "the latest that is named");
    }

    #[test]
    fn the_rest_is_refused_with_what_it_is_and_the_limit() {
        for text in ["tomorrow", "", "2026-02-30T00:00:00Z", "9999-12-31T23:59:59Z", "+99999-01-01T00:00:00Z"] {
            let expected =
                "expected an instant such as \"2030-01-31T09:00:00Z\", 9999-12-30T22:00:00Z at the latest, got ";
            assert_eq!(parse(text).expect_err(text), format!("{expected}{text:?}"));
        }
    }
}
