//! A cache that nodes share: what was outdated does not come back.

use std::time::Duration;

use convoke_core::ports::SharedCache;
use convoke_core::ports::cache::{Lookup, Ticket, VALUE_BYTES_MAX};

/// Tests of a shared cache. `$make` is an async function that gives a [`Subject<dyn SharedCache>`](crate::conformance::Subject) that is
/// empty; `$advance` is one that lets a duration pass for the backend: it moves a paused clock, or waits.
#[macro_export]
macro_rules! cache_conformance {
    ($make:expr, $advance:expr) => {
        $crate::conformance_tests!(
            $make,
            ($advance),
            (cache),
            [
                a_value_is_found_until_it_expires,
                a_value_that_was_outdated_is_missing_and_can_be_put_again,
                what_was_read_before_a_change_is_not_put_after_it,
                of_two_that_read_the_first_puts,
                a_value_that_is_too_large_is_not_put,
            ]
        );
    };
}

const LONG: Duration = Duration::from_secs(600);

async fn ticket(cache: &dyn SharedCache, key: &str) -> Ticket {
    match cache.get(key).await.expect("it responds") {
        Lookup::Missing(ticket) => ticket,
        other => panic!("{other:?} instead of nothing"),
    }
}

async fn found(cache: &dyn SharedCache, key: &str) -> Option<String> {
    match cache.get(key).await.expect("it responds") {
        Lookup::Found { value, left } if !left.is_zero() => Some(value),
        _ => None,
    }
}

async fn put(cache: &dyn SharedCache, key: &str, value: &str, ticket: &Ticket) -> bool {
    cache.put(key, value, LONG, ticket).await.expect("it responds")
}

pub async fn a_value_is_found_until_it_expires(cache: &dyn SharedCache, advance: impl AsyncFn(Duration)) {
    let (brief, free) = (Duration::from_millis(300), ticket(cache, "a").await);
    assert!(cache.put("a", r#"{"n":1}"#, brief, &free).await.expect("it responds"));
    assert_eq!(found(cache, "a").await.as_deref(), Some(r#"{"n":1}"#));
    assert_eq!(found(cache, "b").await, None);
    advance(Duration::from_millis(400)).await;
    assert_eq!(found(cache, "a").await, None);
    let free = ticket(cache, "a").await;
    assert!(put(cache, "a", "2", &free).await);
}

pub async fn a_value_that_was_outdated_is_missing_and_can_be_put_again(
    cache: &dyn SharedCache,
    _advance: impl AsyncFn(Duration),
) {
    for key in ["a", "b"] {
        let free = ticket(cache, key).await;
        assert!(put(cache, key, "1", &free).await);
    }
    cache.outdate(&["a".into(), "never".into()]).await.expect("it responds");
    assert_eq!(found(cache, "a").await, None);
    assert_eq!(found(cache, "b").await.as_deref(), Some("1"));
    let free = ticket(cache, "a").await;
    assert!(put(cache, "a", "2", &free).await);
    assert_eq!(found(cache, "a").await.as_deref(), Some("2"));
}

pub async fn what_was_read_before_a_change_is_not_put_after_it(
    cache: &dyn SharedCache,
    _advance: impl AsyncFn(Duration),
) {
    let early = ticket(cache, "a").await;
    cache.outdate(&["a".into()]).await.expect("it responds");
    assert!(!put(cache, "a", "old", &early).await);
    let between = ticket(cache, "a").await;
    cache.outdate(&["a".into()]).await.expect("it responds");
    assert!(!put(cache, "a", "old", &between).await);
    let late = ticket(cache, "a").await;
    assert!(put(cache, "a", "new", &late).await);
    assert!(!put(cache, "a", "old", &early).await);
    assert_eq!(found(cache, "a").await.as_deref(), Some("new"));
}

pub async fn of_two_that_read_the_first_puts(cache: &dyn SharedCache, _advance: impl AsyncFn(Duration)) {
    let (one, other) = (ticket(cache, "a").await, ticket(cache, "a").await);
    assert!(put(cache, "a", "1", &one).await);
    assert!(!put(cache, "a", "2", &other).await);
    assert_eq!(found(cache, "a").await.as_deref(), Some("1"));
}

pub async fn a_value_that_is_too_large_is_not_put(cache: &dyn SharedCache, _advance: impl AsyncFn(Duration)) {
    let text = |bytes: usize| format!("\"{}\"", "x".repeat(bytes - 2));
    let free = ticket(cache, "a").await;
    assert!(!put(cache, "a", &text(VALUE_BYTES_MAX + 1), &free).await);
    assert!(put(cache, "a", &text(VALUE_BYTES_MAX), &free).await);
    assert_eq!(found(cache, "a").await.map(|value| value.len()), Some(VALUE_BYTES_MAX));
}
