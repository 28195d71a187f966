//! A mesh within one process: for tests, and for an application that is one process today.
//!
//! All callers of [`MemoryMesh::shared`] with the same key are in one mesh for as long as one of them holds it. A
//! message is delivered before the send returns. Time is tokio's, so that a test that pauses it decides when an
//! instance is gone.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, LazyLock, Weak};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use convoke_core::mesh::{InstanceId, MeshFigures, MeshNode};
use convoke_core::ports::{Membership, MeshInbox, MeshLink};
use convoke_core::{Error, Result};
use parking_lot::Mutex;
use tokio::time::Instant;

/// Upper bound of a TTL (one year).
const TTL_MAX: Duration = Duration::from_secs(86_400 * 365);

static SHARED: LazyLock<Mutex<HashMap<String, Weak<Room>>>> = LazyLock::new(Mutex::default);

/// Clones are the same mesh.
#[derive(Clone, Default)]
pub struct MemoryMesh(Arc<Room>);

#[derive(Default)]
struct Room {
    key: String,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    last_id: u64,
    registry: BTreeMap<InstanceId, Entry>,
    inboxes: BTreeMap<InstanceId, Arc<dyn MeshInbox>>,
    lock: Option<(String, Instant)>,
}

struct Entry {
    hostname: String,
    received: Instant,
    figures: Option<MeshFigures>,
}

impl State {
    /// Returns the leader at `now`; an expired lock does not count.
    fn holder(&self, now: Instant) -> Option<&str> {
        self.lock.as_ref().filter(|(_, expires)| *expires > now).map(|(holder, _)| holder.as_str())
    }

    fn take_lock(&mut self, holder: &str, now: Instant, ttl: Duration) {
        self.lock = Some((holder.to_owned(), now + ttl.min(TTL_MAX)));
    }
}

impl MemoryMesh {
    /// Creates a mesh that no other caller can find.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the mesh of this process that has this key.
    pub fn shared(key: &str) -> Self {
        let mut rooms = SHARED.lock();
        if let Some(room) = rooms.get(key).and_then(Weak::upgrade) {
            return MemoryMesh(room);
        }
        rooms.retain(|_, room| room.strong_count() > 0);
        let room = Arc::new(Room { key: key.to_owned(), state: Mutex::default() });
        rooms.insert(key.to_owned(), Arc::downgrade(&room));
        MemoryMesh(room)
    }

    fn within<T>(&self, act: impl FnOnce(&mut State, Instant) -> T) -> T {
        act(&mut self.0.state.lock(), Instant::now())
    }
}

#[async_trait]
impl MeshLink for MemoryMesh {
    fn key(&self) -> String {
        self.0.key.clone()
    }

    async fn join(&self, hostname: &str, inbox: Arc<dyn MeshInbox>) -> Result<Box<dyn Membership>> {
        let id = self.within(|state, now| {
            state.last_id += 1;
            let id = InstanceId(state.last_id);
            state.inboxes.insert(id, inbox);
            state.registry.insert(id, Entry { hostname: hostname.to_owned(), received: now, figures: None });
            id
        });
        Ok(Box::new(MemoryMembership { id, hostname: hostname.to_owned(), room: self.0.clone() }))
    }

    async fn nodes(&self, ttl: Duration) -> Result<Vec<MeshNode>> {
        Ok(self.within(|state, now| {
            let seen = state.registry.iter().map(|(id, entry)| MeshNode {
                instance_id: *id,
                hostname: entry.hostname.clone(),
                idle: now - entry.received,
                is_self: false,
                figures: entry.figures,
            });
            seen.filter(|node| node.idle < ttl).collect()
        }))
    }

    async fn send(&self, letters: &[(InstanceId, Bytes)]) -> Vec<Result<u64>> {
        let deliver = |(to, message): &(InstanceId, Bytes)| {
            // Delivered outside of the lock: the receiver may send.
            let inbox = self.within(|state, _| state.inboxes.get(to).cloned());
            Ok(inbox.map_or(0, |inbox| {
                inbox.on_message(message.clone());
                1
            }))
        };
        letters.iter().map(deliver).collect()
    }

    async fn broadcast(&self, message: Bytes) -> Result<u64> {
        let inboxes: Vec<_> = self.within(|state, _| state.inboxes.values().cloned().collect());
        inboxes.iter().for_each(|inbox| inbox.on_message(message.clone()));
        Ok(inboxes.len() as u64)
    }

    async fn lead(&self, holder: &str, ttl: Duration) -> Result<bool> {
        Ok(self.within(|state, now| {
            let is_mine = state.holder(now).is_none_or(|present| present == holder);
            if is_mine {
                state.take_lock(holder, now, ttl);
            }
            is_mine
        }))
    }

    async fn renew(&self, holder: &str, ttl: Duration) -> Result<bool> {
        Ok(self.within(|state, now| {
            let is_mine = state.holder(now) == Some(holder);
            if is_mine {
                state.take_lock(holder, now, ttl);
            }
            is_mine
        }))
    }

    async fn resign(&self, holder: &str) -> Result<()> {
        self.within(|state, _| state.lock.take_if(|(present, _)| present == holder));
        Ok(())
    }

    async fn sweep(&self, holder: &str, ttl: Duration) -> Result<Vec<InstanceId>> {
        self.within(|state, now| {
            if state.holder(now) != Some(holder) {
                return Err(Error::Fenced { what: "sweep" });
            }
            let is_gone = |entry: &Entry| now - entry.received >= ttl;
            let gone: Vec<_> = state.registry.iter().filter(|(_, entry)| is_gone(entry)).map(|(id, _)| *id).collect();
            state.registry.retain(|_, entry| !is_gone(entry));
            Ok(gone)
        })
    }
}

/// An instance's place in the mesh.
struct MemoryMembership {
    id: InstanceId,
    hostname: String,
    room: Arc<Room>,
}

#[async_trait]
impl Membership for MemoryMembership {
    fn id(&self) -> InstanceId {
        self.id
    }

    async fn heartbeat(&self, ttl: Duration) -> Result<u64> {
        let (mut state, now) = (self.room.state.lock(), Instant::now());
        let figures = state.registry.get(&self.id).and_then(|entry| entry.figures);
        state.registry.insert(self.id, Entry { hostname: self.hostname.clone(), received: now, figures });
        Ok(state.registry.values().filter(|entry| now - entry.received < ttl).count() as u64)
    }

    async fn publish(&self, figures: &MeshFigures, _ttl: Duration) -> Result<()> {
        if let Some(entry) = self.room.state.lock().registry.get_mut(&self.id) {
            entry.figures = Some(*figures);
        }
        Ok(())
    }

    async fn leave(&self) -> Result<()> {
        self.room.state.lock().registry.remove(&self.id);
        Ok(())
    }
}

impl Drop for MemoryMembership {
    fn drop(&mut self) {
        // Dropped outside of the lock: it may be the last owner of something that has a lock of its own.
        let inbox = self.room.state.lock().inboxes.remove(&self.id);
        drop(inbox);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Deaf;

    impl MeshInbox for Deaf {
        fn on_message(&self, _: Bytes) {}
        fn missed(&self) {}
    }

    #[tokio::test]
    async fn those_of_one_key_meet_and_those_of_another_do_not() {
        let (a, b, other) = (MemoryMesh::shared("one"), MemoryMesh::shared("one"), MemoryMesh::shared("two"));
        let first = a.join("h", Arc::new(Deaf)).await.expect("join");
        let second = b.join("h", Arc::new(Deaf)).await.expect("join");
        assert_eq!((first.id(), second.id()), (InstanceId(1), InstanceId(2)));
        assert!(matches!(other.send(&[(first.id(), Bytes::new())]).await[..], [Ok(0)]));
        drop((a, b, first, second));
        let anew = MemoryMesh::shared("one").join("h", Arc::new(Deaf)).await.expect("join");
        assert_eq!(anew.id(), InstanceId(1), "nobody held on to it");
    }
}
