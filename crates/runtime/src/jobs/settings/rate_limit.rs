//! Rate limits beside those that queues set for themselves. In a configuration each is `none`, or of the form `100/1s`.

use convoke_core::jobs::{Queue, RateLimit};
use convoke_core::{Invalid, sections};

const NONE: &str = "none";

sections! {
    /// The section `rate_limit`.
    RateLimitSettings {
        /// The limit of all queues together.
        #[serde(with = "text")]
        global: Option<RateLimit> = None,
        /// The limit of each queue that sets none.
        #[serde(with = "text")]
        default: Option<RateLimit> = None,
    }
}

impl RateLimitSettings {
    /// Returns the limit that a queue has: its own, else the default.
    pub fn of(&self, queue: &Queue) -> Option<RateLimit> {
        queue.rate_limit.or(self.default)
    }

    pub(super) fn check(&self) -> Result<(), Invalid> {
        for (key, rate) in [("rate_limit.global", self.global), ("rate_limit.default", self.default)] {
            rate.map_or(Ok(()), |rate| rate.check()).map_err(|invalid| Invalid::new(key, invalid.message))?;
        }
        Ok(())
    }
}

mod text {
    use std::fmt;

    use serde::{Deserializer, Serializer, de};

    use super::{NONE, RateLimit};

    pub fn serialize<S: Serializer>(rate: &Option<RateLimit>, serializer: S) -> Result<S::Ok, S::Error> {
        match rate {
            Some(rate) => serializer.collect_str(rate),
            None => serializer.serialize_str(NONE),
        }
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<RateLimit>, D::Error> {
        deserializer.deserialize_str(Text)
    }

    struct Text;

    impl de::Visitor<'_> for Text {
        type Value = Option<RateLimit>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a string")
        }

        fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
            if text == NONE {
                return Ok(None);
            }
            let rate = text.parse().map(Some);
            rate.map_err(|message: String| E::custom(message.replace("such as 100/1s,", "such as 100/1s, or none,")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_limit_is_a_number_and_a_window_or_none() {
        let read = |text: &str| serde_json::from_str::<RateLimitSettings>(&format!(r#"{{"global":"{text}"}}"#));
        let limits = read("1000/s").expect("valid");
        assert_eq!(limits.global.map(|limit| limit.to_string()).as_deref(), Some("1000/1s"));
        assert_eq!(limits.default, None);
        assert_eq!(serde_json::to_string(&limits).expect("serialises"), r#"{"global":"1000/1s","default":"none"}"#);
        assert_eq!(read("none").expect("valid"), RateLimitSettings::default());
        let refused = read("many").expect_err("refused").to_string();
        assert!(
            refused.starts_with(r#"expected a number and a duration such as 100/1s, or none, got "many""#),
            "{refused}"
        );
        assert!(read("0/1s").expect_err("refused").to_string().starts_with("expected 1 to"));
    }
}
