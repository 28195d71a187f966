//! Rate limits beside those of queues.

use convoke_core::Invalid;
use convoke_core::jobs::RateLimit;
use convoke_runtime::jobs::RateLimitSettings;

use super::sections;

impl sections::RateLimit {
    pub fn check(&self) -> Result<(), Invalid> {
        for (key, text) in [("rate_limit.global", &self.global), ("rate_limit.default", &self.default)] {
            parse(text).map_err(|message| Invalid::new(key, message))?;
        }
        Ok(())
    }

    pub fn settings(&self) -> RateLimitSettings {
        // Checked before.
        let rate = |text: &str| parse(text).ok().flatten();
        RateLimitSettings { global: rate(&self.global), default: rate(&self.default) }
    }
}

fn parse(text: &str) -> Result<Option<RateLimit>, String> {
    if text == "none" {
        return Ok(None);
    }
    text.parse().map(Some).map_err(|message: String| message.replace("such as 100/1s,", "such as 100/1s, or none,"))
}

#[cfg(test)]
mod tests {
    use crate::config::Config;

    #[test]
    fn a_rate_limit_is_a_number_and_a_window_or_none() {
        let mut config = Config::default();
        config.rate_limit.global = "1000/1s".into();
        config.check().expect("valid");
        let limits = config.settings().rate_limit;
        assert_eq!(limits.global.map(|limit| limit.to_string()).as_deref(), Some("1000/1s"));
        assert_eq!(limits.default, None);
        config.rate_limit.default = "many".into();
        let refused = config.check().expect_err("refused").to_string();
        let expected = r#"expected a number and a duration such as 100/1s, or none, got "many""#;
        assert_eq!(refused, format!("rate_limit.default: {expected}"));
        config.rate_limit.default = "0/1s".into();
        assert!(config.check().expect_err("refused").to_string().starts_with("rate_limit.default: expected 1 to"));
    }
}
