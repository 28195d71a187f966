//! Instants as clients write them: RFC 3339, such as `2030-01-31T09:00:00Z`.
//!
//! A text that is no instant, or is out of range, is rejected with an error that contains the text and an accepted
//! example. The form is exact, because an engine that reads instants in SQL must accept the same texts: `convoke_enqueue` does.

use jiff::Timestamp;

/// Parses an RFC 3339 instant of the years 1 to 9999, less than 16 hours from UTC. Digits below a microsecond are cut off: stores keep
/// none.
pub fn parse(text: &str) -> Result<Timestamp, String> {
    has_form(text).then(|| in_micros(text.parse().ok()?)).flatten().ok_or_else(|| {
        let latest = Timestamp::from_second(Timestamp::MAX.as_second()).unwrap_or(Timestamp::MAX);
        format!("expected an instant such as \"2030-01-31T09:00:00Z\", {latest} at the latest, got {text:?}")
    })
}

fn in_micros(at: Timestamp) -> Option<Timestamp> {
    Timestamp::new(at.as_second(), at.subsec_nanosecond() / 1_000 * 1_000).ok()
}

/// The greatest number of hours of an offset from UTC. PostgreSQL reads no larger one.
const OFFSET_HOURS_MAX: u8 = 15;

/// Returns whether the text has a date, a time with seconds and up to nine decimals, and `Z` or an offset with a colon.
fn has_form(text: &str) -> bool {
    let text = text.as_bytes();
    let number = |from: usize| match text.get(from..from + 2) {
        Some([tens @ b'0'..=b'9', ones @ b'0'..=b'9']) => Some((tens - b'0') * 10 + (ones - b'0')),
        _ => None,
    };
    let has = |at: usize, letters: &[u8]| text.get(at).is_some_and(|letter| letters.contains(letter));
    let is_date = number(0).zip(number(2)).is_some_and(|year| year != (0, 0))
        && has(4, b"-")
        && number(5).is_some()
        && has(7, b"-")
        && number(8).is_some();
    let is_time = has(10, b"Tt ")
        && number(11).is_some_and(|hour| hour < 24)
        && has(13, b":")
        && number(14).is_some_and(|minute| minute < 60)
        && has(16, b":")
        && number(17).is_some_and(|second| second < 60);
    let rest = text.get(19..).unwrap_or_default();
    let rest = match rest.strip_prefix(b".") {
        Some(decimals) => {
            let digits = decimals.iter().take_while(|digit| digit.is_ascii_digit()).count();
            if (1..=9).contains(&digits) { &decimals[digits..] } else { b"" }
        }
        None => rest,
    };
    let zone = text.len() - rest.len();
    let is_offset = rest.len() == 6
        && has(zone, b"+-")
        && number(zone + 1).is_some_and(|hours| hours <= OFFSET_HOURS_MAX)
        && has(zone + 3, b":")
        && number(zone + 4).is_some_and(|minutes| minutes < 60);
    is_date && is_time && (matches!(rest, b"Z" | b"z") || is_offset)
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
        let text = parse("2026-03-01T13:00:00.123456789Z").map(|at| at.to_string());
        assert_eq!(text.as_deref(), Ok("2026-03-01T13:00:00.123456Z"));
    }

    #[test]
    fn the_rest_is_refused_with_what_it_is_and_the_limit() {
        for text in [
            "tomorrow",
            "",
            "2026-02-30T00:00:00Z",
            "9999-12-31T23:59:59Z",
            "+99999-01-01T00:00:00Z",
            "0000-01-01T00:00:00Z",
            "2026-03-01T13:00Z",
            "2026-03-01T13:00:00",
            "2026-03-01T13:00:60Z",
            "2026-03-01T24:00:00Z",
            "2026-03-01T13:00:00+16:00",
            "2026-03-01T13:00:00+02",
            "2026-03-01T13:00:00.Z",
            "2026-03-01T13:00:00.1234567891Z",
            "2026-03-01T13:00:00Z[UTC]",
            "20260301T130000Z",
        ] {
            let expected =
                "expected an instant such as \"2030-01-31T09:00:00Z\", 9999-12-30T22:00:00Z at the latest, got ";
            assert_eq!(parse(text).expect_err(text), format!("{expected}{text:?}"));
        }
    }
}
