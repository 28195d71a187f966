//! A limit of failed logins, so that nobody can try tokens at the login page for long.
//!
//! Failures are counted for each address, of IPv6 for each network of 64 bits, over windows of a minute. The number of
//! addresses is bounded: if there are too many, new ones share one count.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::error::{ApiError, ApiResult};

const FAILURES_MAX: u32 = 20;
const WINDOW: Duration = Duration::from_secs(60);
const ADDRESSES_MAX: usize = 1_024;

/// The failed logins of the last minute.
#[derive(Default)]
pub struct LoginLimit(Mutex<HashMap<Option<IpAddr>, Window>>);

struct Window {
    began: Instant,
    failures: u32,
}

impl LoginLimit {
    /// Rejects a login from an address with too many failures.
    pub fn check(&self, address: Option<IpAddr>) -> ApiResult<()> {
        let windows = self.0.lock();
        let key = key(&windows, address);
        let failures = windows.get(&key).filter(|window| window.began.elapsed() < WINDOW).map_or(0, |it| it.failures);
        if failures < FAILURES_MAX {
            return Ok(());
        }
        Err(ApiError::too_many(format!("{FAILURES_MAX} logins have failed within a minute; try again in a minute")))
    }

    /// Counts a failure.
    pub fn count_failure(&self, address: Option<IpAddr>) {
        let mut windows = self.0.lock();
        if windows.len() >= ADDRESSES_MAX {
            windows.retain(|_, window| window.began.elapsed() < WINDOW);
        }
        let key = key(&windows, address);
        let window = windows.entry(key).or_insert_with(|| Window { began: Instant::now(), failures: 0 });
        if window.began.elapsed() >= WINDOW {
            *window = Window { began: Instant::now(), failures: 0 };
        }
        window.failures += 1;
    }
}

/// Returns the key of an address; `None` if it is not known or there are too many.
fn key(windows: &HashMap<Option<IpAddr>, Window>, address: Option<IpAddr>) -> Option<IpAddr> {
    let key = address.map(|address| match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
        address => address,
    });
    if windows.contains_key(&key) || windows.len() < ADDRESSES_MAX { key } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> Option<IpAddr> {
        Some(text.parse().expect("an address"))
    }

    #[tokio::test(start_paused = true)]
    async fn too_many_failures_of_an_address_close_the_login_for_it_for_a_minute() {
        let limit = LoginLimit::default();
        for _ in 0..FAILURES_MAX {
            limit.check(address("2001:db8::1")).expect("not yet");
            limit.count_failure(address("2001:db8::2"));
        }
        let refused = limit.check(address("2001:db8::3")).expect_err("the same network");
        assert_eq!(refused.status, 429);
        limit.check(address("2001:db8:0:1::1")).expect("another network");
        limit.check(address("10.0.0.1")).expect("another address");
        tokio::time::advance(WINDOW).await;
        limit.check(address("2001:db8::1")).expect("a minute later");
    }

    #[tokio::test(start_paused = true)]
    async fn memory_is_bounded_and_new_addresses_then_share_a_count() {
        let limit = LoginLimit::default();
        let nth = |n: usize| Some(IpAddr::V4(std::net::Ipv4Addr::from_bits(n as u32)));
        for n in 0..ADDRESSES_MAX + 100 {
            limit.count_failure(nth(n));
        }
        assert!(limit.0.lock().len() <= ADDRESSES_MAX + 1);
        assert!(limit.check(nth(ADDRESSES_MAX + 7)).is_err(), "they share a count");
        limit.check(nth(7)).expect("it has its own");
    }
}
