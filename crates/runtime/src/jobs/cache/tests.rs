use std::sync::atomic::AtomicUsize;

use super::*;

fn cache(ttl: Duration) -> Cache {
    let cache = Cache::new(
        "convoke",
        &CacheSettings { job_ttl: ttl, worker_ttl: ttl, node_ttl: ttl, ..CacheSettings::default() },
        None,
    );
    cache.mark_subscribed(&Kind::ALL);
    cache
}

fn job(n: u128) -> JobId {
    JobId(uuid::Uuid::from_u128(n))
}

fn kept(bytes: usize) -> Option<Keep> {
    Some(Keep { lifetime: Duration::MAX, bytes })
}

/// Reads a value that counts how often it was loaded.
async fn read(cache: &Cache, key: Key<'_>, loads: &AtomicUsize) -> usize {
    let load = async { Ok(loads.fetch_add(1, Ordering::SeqCst)) };
    *cache.read(key, load, |_| kept(8)).await.expect("it loads")
}

const TTL: Duration = Duration::from_secs(30);

#[tokio::test(start_paused = true)]
async fn what_is_kept_is_read_once_until_its_time_is_over() {
    let (cache, loads) = (cache(TTL), AtomicUsize::new(0));
    assert_eq!([read(&cache, Key::Nodes, &loads).await, read(&cache, Key::Nodes, &loads).await], [0, 0]);
    tokio::time::advance(TTL - Duration::from_millis(1)).await;
    assert_eq!(read(&cache, Key::Nodes, &loads).await, 0);
    tokio::time::advance(Duration::from_millis(1)).await;
    assert_eq!(read(&cache, Key::Nodes, &loads).await, 1);
}

#[tokio::test]
async fn a_change_is_forgotten_at_once_and_only_it() {
    let (cache, loads) = (cache(TTL), AtomicUsize::new(0));
    let node = NodeId::new("n").expect("a name");
    let keys = [Key::Job(job(1)), Key::Job(job(2)), Key::Workers, Key::Nodes, Key::JobsOf(&node)];
    for (n, key) in keys.iter().enumerate() {
        assert_eq!(read(&cache, *key, &loads).await, n);
    }
    cache.job_changed(job(1));
    cache.node_changed(&node);
    let mut seen = Vec::new();
    for key in keys {
        seen.push(read(&cache, key, &loads).await);
    }
    assert_eq!(seen, [5, 1, 2, 6, 7]);
    let reported: Vec<String> = cache.unpublished.lock().iter().cloned().collect();
    let expected = ["coordinator:n", "coordinators", &format!("job:{}", job(1)), "jobs:follower:n"];
    assert_eq!(reported, expected.map(|key| format!("convoke:{key}")));
}

#[tokio::test]
async fn what_was_read_before_a_change_is_not_kept_after_it() {
    let (cache, loads) = (cache(TTL), AtomicUsize::new(1));
    let key = Key::Job(job(1));
    let load = async {
        cache.job_changed(job(1));
        Ok(0)
    };
    assert_eq!(*cache.read(key, load, |_: &usize| kept(8)).await.expect("it loads"), 0);
    assert_eq!(read(&cache, key, &loads).await, 1);
}

#[tokio::test]
async fn nothing_is_kept_while_changes_go_unheard() {
    let (cache, loads) = (cache(TTL), AtomicUsize::new(0));
    read(&cache, Key::Workers, &loads).await;
    cache.deaf(&[Kind::Worker]);
    assert_eq!([read(&cache, Key::Workers, &loads).await, read(&cache, Key::Workers, &loads).await], [1, 2]);
    cache.mark_subscribed(&[Kind::Worker]);
    assert_eq!([read(&cache, Key::Workers, &loads).await, read(&cache, Key::Workers, &loads).await], [3, 3]);
    cache.missed(&[Kind::Worker]);
    assert_eq!(read(&cache, Key::Workers, &loads).await, 4);
}

#[tokio::test]
async fn another_node_s_word_is_taken_and_nonsense_is_passed_over() {
    let (cache, loads) = (cache(TTL), AtomicUsize::new(0));
    let receive =
        |keys: &[&str]| cache.apply_outdated(&Outdated { v: V1, keys: keys.iter().map(|key| (*key).into()).collect() });
    read(&cache, Key::Workers, &loads).await;
    read(&cache, Key::Nodes, &loads).await;
    receive(&["", "convoke", "other:workers", "convoke:moon", "convoke:worker:w"]);
    assert_eq!([read(&cache, Key::Workers, &loads).await, read(&cache, Key::Nodes, &loads).await], [0, 1]);
    receive(&["convoke:workers"]);
    assert_eq!([read(&cache, Key::Workers, &loads).await, read(&cache, Key::Nodes, &loads).await], [2, 1]);
    receive(&["convoke:*"]);
    assert_eq!([read(&cache, Key::Workers, &loads).await, read(&cache, Key::Nodes, &loads).await], [3, 4]);
}

#[tokio::test]
async fn a_lifetime_of_nothing_switches_a_kind_off() {
    let (cache, loads) = (cache(Duration::ZERO), AtomicUsize::new(0));
    assert_eq!([read(&cache, Key::Nodes, &loads).await, read(&cache, Key::Nodes, &loads).await], [0, 1]);
}

#[tokio::test]
async fn what_is_kept_weighs_a_bounded_amount() {
    let cache = cache(TTL);
    let heavy = |_: &Vec<u8>| kept(ENTRY_BYTES_MAX);
    for n in 0..200 {
        cache.read(Key::Job(job(n)), async { Ok(Vec::new()) }, heavy).await.expect("it loads");
    }
    let too_heavy = |_: &Vec<u8>| kept(ENTRY_BYTES_MAX + 1);
    cache.read(Key::Job(job(1_000)), async { Ok(Vec::new()) }, too_heavy).await.expect("it loads");
    let kind_cache = cache.kind_cache(Kind::Job);
    kind_cache.entries.run_pending_tasks();
    assert!(kind_cache.entries.weighted_size() <= KIND_CACHE_BYTES_MAX, "{}", kind_cache.entries.weighted_size());
    assert!(kind_cache.get::<Vec<u8>>(&Key::Job(job(1_000)).text("convoke")).is_none());
}

#[tokio::test]
async fn more_changes_than_can_be_named_are_told_as_everything() {
    let cache = cache(TTL);
    for n in 0..=UNPUBLISHED_KEYS_MAX as u128 {
        cache.job_changed(job(n));
    }
    assert!(cache.unpublished.lock().contains("convoke:*"));
    assert!(cache.unpublished.lock().len() <= UNPUBLISHED_KEYS_MAX);
}
