//! The record of operators' acts, and the values that all nodes share.

use convoke_core::audit::{Act, AuditEntry, AuditQuery, AuditVia};
use convoke_core::ports::Store;

use super::stage::*;

/// An act at a second, by a caller, on a target.
pub fn act(second: i64, who: &str, action: &str, target: &str) -> Act {
    Act {
        at: at(second),
        who: who.into(),
        via: AuditVia::Cli,
        action: action.into(),
        target: target.into(),
        before: Some(json(r#"{"paused": false}"#)),
        after: None,
        node: node("n"),
    }
}

async fn append(store: &dyn Store, acts: &[Act]) -> Vec<AuditEntry> {
    let mut entries = Vec::new();
    for act in acts {
        let seq = store.append_audit(act.clone()).await.expect("append");
        entries.push(AuditEntry { seq, act: act.clone() });
    }
    entries
}

async fn read(store: &dyn Store, query: AuditQuery) -> Vec<AuditEntry> {
    store.audit(&AuditQuery { limit: 100, ..query }).await.expect("audit").entries
}

pub async fn acts_are_kept_as_they_were_given_the_newest_first(store: &dyn Store) {
    assert_eq!(store.audit(&AuditQuery::default()).await.expect("audit"), Default::default());
    let odd = Act {
        via: AuditVia::Dashboard,
        before: None,
        after: Some(json(r#"["<b>",null]"#)),
        ..act(2, "ä <script>", "a'b\"c", "")
    };
    let mut entries = append(store, &[act(1, "ada", "queue.pause", "mail"), odd]).await;
    assert!(entries[0].seq < entries[1].seq, "later entries have higher numbers");
    entries.reverse();
    assert_eq!(read(store, AuditQuery::default()).await, entries);
}

pub async fn acts_are_found_by_each_filter_and_all_together(store: &dyn Store) {
    let entries = append(
        store,
        &[
            act(1, "ada", "queue.pause", "mail"),
            act(2, "bob", "queue.pause", "mail"),
            act(3, "ada", "job.cancel", "mail"),
            act(4, "ada", "queue.pause", "web"),
        ],
    )
    .await;
    let some = |text: &str| Some(text.to_owned());
    let all = AuditQuery { who: some("ada"), action: some("queue.pause"), target: some("mail"), ..Default::default() };
    for (query, expected) in [
        (AuditQuery { who: some("ada"), ..Default::default() }, vec![3, 2, 0]),
        (AuditQuery { action: some("queue.pause"), ..Default::default() }, vec![3, 1, 0]),
        (AuditQuery { target: some("mail"), ..Default::default() }, vec![2, 1, 0]),
        (AuditQuery { after: Some(at(2)), before: Some(at(4)), ..Default::default() }, vec![2, 1]),
        (AuditQuery { after: Some(at(1)), before: Some(at(2)), ..all.clone() }, vec![0]),
        (AuditQuery { who: some("ad"), ..Default::default() }, vec![]),
        (AuditQuery { who: some("ADA"), ..Default::default() }, vec![]),
        (all, vec![0]),
    ] {
        let expected: Vec<_> = expected.into_iter().map(|index: usize| entries[index].clone()).collect();
        assert_eq!(read(store, query.clone()).await, expected, "{query:?}");
    }
}

pub async fn the_record_is_read_page_by_page(store: &dyn Store) {
    let acts: Vec<_> = (0..5).map(|n| act(n, "ada", "job.retry", &n.to_string())).collect();
    let mut entries = append(store, &acts).await;
    entries.reverse();
    let (mut cursor, mut met) = (None, Vec::new());
    loop {
        let page = store.audit(&AuditQuery { limit: 2, cursor, ..Default::default() }).await.expect("audit");
        assert!(page.entries.len() <= 2);
        met.extend(page.entries);
        // An entry that arrives meanwhile is on no later page.
        append(store, &[act(9, "bob", "job.retry", "new")]).await;
        cursor = page.next_cursor;
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(met, entries);
}

pub async fn old_acts_expire_and_numbers_are_not_used_again(store: &dyn Store) {
    let fence = Stage::new(store).await.fence;
    let entries = append(store, &[act(3, "a", "x", ""), act(1, "a", "x", ""), act(2, "a", "x", "")]).await;
    assert_eq!(store.expire_audit(fence, at(1), 10).await.expect("expire"), 0, "that instant is kept");
    assert_eq!(store.expire_audit(fence, at(3), 1).await.expect("expire"), 1, "at most so many");
    let left: Vec<_> = read(store, AuditQuery::default()).await.into_iter().map(|entry| entry.act.at).collect();
    assert_eq!(left, [at(2), at(3)], "the oldest went first");
    assert_eq!(store.expire_audit(fence, at(9), 10).await.expect("expire"), 2);
    assert!(read(store, AuditQuery::default()).await.is_empty());
    let next = append(store, &[act(4, "a", "x", "")]).await;
    assert!(next[0].seq > entries[2].seq);
}

pub async fn a_shared_value_is_set_by_compare_and_swap(store: &dyn Store) {
    assert_eq!(store.value("key").await.expect("value"), None);
    assert!(!store.swap_value("key", Some(b"a"), b"b").await.expect("swap"), "there is none yet");
    assert!(store.swap_value("key", None, b"\0\xff").await.expect("swap"));
    assert!(!store.swap_value("key", None, b"c").await.expect("swap"), "the first stays");
    assert_eq!(store.value("key").await.expect("value").as_deref(), Some(&b"\0\xff"[..]));
    assert!(!store.swap_value("key", Some(b"c"), b"d").await.expect("swap"), "another value is known");
    assert!(store.swap_value("key", Some(b"\0\xff"), b"d").await.expect("swap"));
    assert_eq!(store.value("key").await.expect("value").as_deref(), Some(&b"d"[..]));
    assert_eq!(store.value("other").await.expect("value"), None);
}
