//! `s3://bucket/prefix`, and the usual `AWS_*` variables for all that is not in it.

use std::sync::Arc;
use std::time::Duration;

use convoke_core::Result;
use convoke_core::error::Invalid;
use object_store::aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey, S3ConditionalPut};
use object_store::{ClientOptions, RetryConfig};

use super::wire::{Meter, Metered};

/// A server that cannot be reached within this time is unavailable.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Longer than any caller waits: closes requests that callers have abandoned.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// The default; most servers other than Amazon's ignore the region.
const REGION: &str = "us-east-1";

/// A bucket and the folder in it.
pub(super) struct Address {
    pub bucket: String,
    pub prefix: String,
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "s3://{}", self.bucket)?;
        if self.prefix.is_empty() { Ok(()) } else { write!(f, "/{}", self.prefix) }
    }
}

/// Returns the parts of an address that may be shown: bucket and folder. `None` if `url` is not an address.
pub fn shown(url: &str) -> Option<String> {
    Address::parse(url).ok().map(|address| address.to_string())
}

impl Address {
    pub fn parse(url: &str) -> Result<Self> {
        let expected = || Invalid::new("leases.url", "expected s3://bucket or s3://bucket/prefix");
        let rest = url.strip_prefix("s3://").ok_or_else(expected)?;
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        if bucket.is_empty() || !bucket.bytes().all(is_name) {
            // This part may be a password: s3db.js has its keys in the address.
            let message = "expected s3://bucket/prefix with a bucket's name alone: keys go into AWS_ACCESS_KEY_ID and \
                           AWS_SECRET_ACCESS_KEY";
            return Err(Invalid::new("leases.url", message).into());
        }
        let prefix = prefix.trim_matches('/');
        let is_plain = |part: &str| !part.is_empty() && part != "." && part != "..";
        if prefix.contains(['?', '#']) || !(prefix.is_empty() || prefix.split('/').all(is_plain)) {
            return Err(expected().into());
        }
        Ok(Address { bucket: bucket.to_owned(), prefix: prefix.to_owned() })
    }

    /// Opens a client of the bucket. `variables` are as in the environment; those that are not `AWS_*` are ignored.
    pub fn open(&self, variables: impl IntoIterator<Item = (String, String)>, meter: Arc<Meter>) -> Result<AmazonS3> {
        let mut options = ClientOptions::new().with_timeout(REQUEST_TIMEOUT).with_connect_timeout(CONNECT_TIMEOUT);
        let mut builder = AmazonS3Builder::new();
        let mut has_region = false;
        for (name, value) in variables {
            let key = name.strip_prefix("AWS_").map(|_| name.to_ascii_lowercase());
            let Some(key) = key.and_then(|key| key.parse::<AmazonS3ConfigKey>().ok()) else { continue };
            match key {
                // An address without TLS permits plain HTTP, as in every other tool that reads these variables.
                AmazonS3ConfigKey::Endpoint | AmazonS3ConfigKey::S3Endpoint if value.starts_with("http://") => {
                    options = options.with_allow_http(true);
                }
                AmazonS3ConfigKey::Region | AmazonS3ConfigKey::DefaultRegion => has_region = true,
                AmazonS3ConfigKey::Client(_) => continue,
                _ => {}
            }
            builder = builder.with_config(key, value);
        }
        if !has_region {
            builder = builder.with_region(REGION);
        }
        let retry = RetryConfig { max_retries: 0, ..RetryConfig::default() };
        let builder = builder.with_bucket_name(&self.bucket).with_client_options(options).with_retry(retry);
        let builder = builder.with_conditional_put(S3ConditionalPut::ETagMatch).with_disable_bulk_delete(true);
        let built = builder.with_http_connector(Metered(meter)).build();
        built.map_err(|error| Invalid::new("leases.url", format!("expected settings for S3 in AWS_*: {error}")).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(url: &str) -> Option<(String, String)> {
        Address::parse(url).ok().map(|address| (address.bucket, address.prefix))
    }

    #[test]
    fn an_address_is_a_bucket_and_perhaps_a_folder() {
        assert_eq!(parts("s3://bucket"), Some(("bucket".into(), "".into())));
        assert_eq!(parts("s3://my.bucket-1/"), Some(("my.bucket-1".into(), "".into())));
        assert_eq!(parts("s3://bucket/a/b=c/"), Some(("bucket".into(), "a/b=c".into())));
        for wrong in ["s3://", "s3:///a", "s3:bucket", "s3://b/a//b", "s3://b/../a", "s3://b?x=1", "s3://b/a?x=1"] {
            assert_eq!(parts(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn keys_in_an_address_are_refused_and_not_shown() {
        let error = Address::parse("s3://AKIA:hunter2@bucket/prefix").err().expect("refused").to_string();
        assert!(error.contains("AWS_SECRET_ACCESS_KEY") && !error.contains("hunter2"), "{error}");
    }
}
