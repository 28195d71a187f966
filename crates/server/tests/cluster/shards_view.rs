//! Shards are known to the leader alone, and shown by every node.

use convoke_testkit::process::{Cli, Fleet, Launch, Program, eventually};

#[tokio::test(flavor = "multi_thread")]
async fn every_node_shows_the_shards_that_the_leader_coordinates() {
    let binary = env!("CARGO_BIN_EXE_convoke");
    let fleet = Fleet::builder(binary).size(2).args(["--shards", "tcp://127.0.0.1:0"]).start().await;
    shown_by_every_node(&fleet).await;
}

/// Of a fleet of two that coordinates shards.
pub async fn shown_by_every_node(fleet: &Fleet) {
    let binary = env!("CARGO_BIN_EXE_convoke");
    let (leader, follower) = (fleet.leader().await, fleet.follower().await);
    let (leader, follower) = (fleet.member(leader), fleet.member(follower));
    let address = eventually("the shard socket", || async {
        leader.http().read("/v1/shards").await["listening"].as_str().map(str::to_owned)
    })
    .await;
    let directory = tempfile::TempDir::with_prefix("convoke-shards-").expect("a temporary directory");
    let words = ["shards", "join", "orders", "--worker-id", "a", "--shards", "4", "--coordinator", &address];
    let _worker = Program::start(&Launch {
        name: "a shard worker".into(),
        binary: binary.into(),
        args: words.map(Into::into).to_vec(),
        env: Vec::new(),
        directory: directory.path().to_owned(),
    });
    let shown = eventually("all shards, shown by the leader", || async {
        let response = leader.http().get("/v1/shards/orders").await.ok()?;
        let service = (response.status == 200).then(|| response.json())?;
        (service["workers"][0]["shards"].as_array()?.len() == 4).then_some(service)
    })
    .await;
    let relayed = follower.http().get("/v1/shards/orders").await.expect("a response").expect(200);
    assert_eq!(relayed["workers"][0]["shards"], shown["workers"][0]["shards"], "{relayed}");
    assert_eq!(relayed["version"], shown["version"], "{relayed}");
    let all = follower.http().read("/v1/shards").await;
    assert_eq!((&all["coordinator"], &all["services"][0]["service"]), (&leader.id.clone().into(), &"orders".into()));
    assert_eq!(follower.http().get("/v1/shards/unknown").await.expect("a response").status, 404);
    let server = Some(follower.http().url());
    let cli = Cli { binary: binary.into(), directory: directory.path().to_owned(), server, env: Vec::new() };
    let status = cli.run(["shards", "status", "orders"]).await;
    assert!(status.expect(0).contains("0-3"), "{status:?}");
}
