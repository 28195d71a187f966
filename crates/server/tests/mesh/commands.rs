//! The commands of the mesh among instances on Node.js.

use convoke_testkit::process::{Cli, Launch, Program, RedisServer, Signal, skip_loudly};
use serde_json::{Value, json};

use crate::peer::{self, Peer};

const KEY: &str = "my-app";

/// The name in the package.json of the instances on Node.js: there it is the prefix unless a variable names one.
fn package_name() -> String {
    let package: Value = serde_json::from_str(include_str!("node/package.json")).expect("a package");
    package["name"].as_str().expect("a name").to_owned()
}

#[tokio::test]
async fn a_command_serves_an_instance_on_node_under_the_name_of_their_package() {
    let test = "a_command_serves_an_instance_on_node_under_the_name_of_their_package";
    let Some(directory) = peer::installed().await else {
        return skip_loudly(test, "there is no node or no npm on this machine");
    };
    let redis = RedisServer::start().await;
    let prefixes = json!({"prefix": package_name(), "lockPrefix": package_name()});
    let peer = Peer::start(&directory, redis.port(), KEY, prefixes).await;
    let url = redis.url();
    let command = "read -r data; echo \"{\\\"got\\\":$data,\\\"from\\\":$CONVOKE_MESH_CALLER}\"";
    let mut ours = Program::start(&Launch {
        name: "convoke mesh serve".into(),
        binary: env!("CARGO_BIN_EXE_convoke").into(),
        args: [
            "mesh",
            "serve",
            KEY,
            "--redis",
            &url,
            "--on",
            "getStatus",
            "--exec",
            command,
            "--on",
            "fail",
            "--exec",
            "echo no such row >&2; exit 3",
        ]
        .map(Into::into)
        .into(),
        env: Vec::new(),
        directory: directory.clone(),
    });
    let number = |line: &str| line.strip_prefix("instance ")?.split(' ').next()?.parse().ok();
    let number: u64 = ours.line("that it is ready", number).await.expect("it gets ready");
    assert_eq!(number, 2, "both are in one mesh");

    let reply = peer.invoke(number, "getStatus", json!({"verbose": true})).await;
    assert_eq!(reply["ok"], json!({"got": {"verbose": true}, "from": 1}), "{reply}");
    let failed = peer.invoke(number, "fail", json!(null)).await;
    assert_eq!((&failed["name"], &failed["error"]), (&json!("MeshHandlerError"), &json!("exit code 3: no such row")));
    let unknown = peer.invoke(number, "unknown", json!(null)).await;
    assert_eq!(unknown["name"], "MeshNoHandlerError", "{unknown}");

    let cli = Cli { binary: env!("CARGO_BIN_EXE_convoke").into(), directory, server: None, env: Vec::new() };
    let words = ["mesh", "broadcast", KEY, "clear", r#"{"keys":["a"]}"#, "--redis", &url, "--json"];
    assert_eq!(cli.run(words).await.json(), json!({"instances": 2}));
    assert_eq!(peer.event("broadcast").await["data"], json!({"keys": ["a"]}));

    ours.signal(Signal::TERM);
    assert_eq!(ours.wait().await.code(), Some(0), "{:?}", ours.printed());
    peer.stop().await;
}
