//! Shared parts of the tests.

use std::time::Duration;

use convoke::mesh::{MeshAddress, MeshSettings};
use convoke::{InstanceId, Mesh, Request};
use convoke_testkit::process::RedisServer;
use redis::aio::MultiplexedConnection;
use serde::{Deserialize, Serialize};

pub const KEY: &str = "my-app";

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Echo(pub u64);

impl Request for Echo {
    const TYPE: &'static str = "echo";
    type Response = u64;
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

/// Short times, so that what must pass does.
pub fn quick() -> MeshSettings {
    MeshSettings {
        heartbeat_interval: Duration::from_millis(200),
        node_ttl: Duration::from_secs(2),
        request_timeout: Duration::from_secs(2),
        leader_ttl: Duration::from_secs(2),
        leader_renew_interval: Duration::from_millis(400),
        leader_retry_delay: Duration::from_millis(200),
        ..MeshSettings::default()
    }
}

pub async fn connect(server: &RedisServer) -> Mesh {
    Mesh::at(&MeshAddress::new(server.url()), KEY).await.expect("connects").settings(quick())
}

/// An instance with handlers.
pub async fn start(server: &RedisServer) -> Mesh {
    let mesh = connect(server).await.on(|Echo(n)| async move { Ok(n) }).on(|Sleep { ms }| async move {
        tokio::time::sleep(Duration::from_millis(ms)).await;
        Ok(())
    });
    mesh.start().await.expect("starts")
}

/// A connection of the test's own, to do what a stranger would.
pub async fn probe(server: &RedisServer) -> MultiplexedConnection {
    let client = redis::Client::open(server.url()).expect("a URL");
    // It waits as long as it takes: a busy machine is no failure.
    let config = redis::AsyncConnectionConfig::new().set_response_timeout(None);
    client.get_multiplexed_async_connection_with_config(&config).await.expect("connects")
}

/// Breaks every connection but the probe's own.
pub async fn drop_connections(probe: &mut MultiplexedConnection) {
    for kind in ["normal", "pubsub"] {
        let mut command = redis::cmd("CLIENT");
        command.arg("KILL").arg("TYPE").arg(kind).arg("SKIPME").arg("yes");
        let _: i64 = command.query_async(probe).await.expect("kills");
    }
}

/// How many listen to what is sent to each of these.
pub async fn listeners(probe: &mut MultiplexedConnection, instances: &[InstanceId]) -> Vec<i64> {
    let mut command = redis::cmd("PUBSUB");
    command.arg("NUMSUB");
    for id in instances {
        command.arg(format!("app:mesh:{KEY}:node:{id}"));
    }
    let response: Vec<redis::Value> = command.query_async(probe).await.expect("counts");
    let counts = response.into_iter().skip(1).step_by(2);
    counts.map(|count| redis::from_redis_value(count).expect("a number")).collect()
}

/// The same numbers every time: a message that does harm can be found again.
pub struct Dice(pub u64);

impl Dice {
    pub fn roll(&mut self, sides: u64) -> u64 {
        // Weyl's sequence through a finaliser: no generator is needed for this.
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (bits ^ (bits >> 31)) % sides
    }

    pub fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.roll(from.len() as u64) as usize]
    }
}
