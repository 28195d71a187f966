//! Shared parts of the tests.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use convoke::mesh::{MeshAddress, MeshSettings};
use convoke::{Broadcast, Mesh, MeshContext, Request};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Echo(pub serde_json::Value);

impl Request for Echo {
    const TYPE: &'static str = "echo";
    type Response = serde_json::Value;
}

/// Replies after so many milliseconds.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Sleep {
    pub ms: u64,
}

impl Request for Sleep {
    const TYPE: &'static str = "sleep";
    type Response = ();
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Fail(pub String);

impl Request for Fail {
    const TYPE: &'static str = "fail";
    type Response = ();
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Clear {
    pub keys: Vec<String>,
}

impl Broadcast for Clear {
    const TYPE: &'static str = "clear";
}

/// A key that no other test has.
pub fn new_key() -> String {
    static LAST: AtomicU64 = AtomicU64::new(0);
    format!("test-{}", LAST.fetch_add(1, Ordering::Relaxed))
}

/// An instance that is not started and has no handlers.
pub async fn idle(key: &str) -> Mesh {
    Mesh::at(&MeshAddress::new("memory:"), key).await.expect("memory is always there")
}

pub fn with_handlers(mesh: Mesh) -> Mesh {
    mesh.on(|Echo(value)| async move { Ok(value) })
        .on(|Sleep { ms }| async move {
            tokio::time::sleep(Duration::from_millis(ms)).await;
            Ok(())
        })
        .on_with(|_: MeshContext, Fail(why)| async move { Err(why.into()) })
}

/// An instance with handlers.
pub async fn start(key: &str) -> Mesh {
    with_handlers(idle(key).await).start().await.expect("starts")
}

pub async fn start_with(key: &str, settings: MeshSettings) -> Mesh {
    with_handlers(idle(key).await.settings(settings)).start().await.expect("starts")
}

/// Two of one mesh.
pub async fn pair() -> (Mesh, Mesh) {
    let key = new_key();
    (start(&key).await, start(&key).await)
}
