//! The measurement itself, on a Redis that is somebody's.

use convoke_testkit::process::{Cli, RedisServer};
use tempfile::TempDir;

#[tokio::test]
async fn two_measurements_on_one_redis_keep_apart_and_leave_nothing_behind() {
    let redis = RedisServer::start().await;
    let mut probe =
        redis::Client::open(redis.url()).expect("a URL").get_multiplexed_async_connection().await.expect("up");
    let _: () = redis::cmd("SET").arg("theirs").arg(1).query_async(&mut probe).await.expect("sets");
    let directory = TempDir::with_prefix("convoke-bench-").expect("a temporary directory");
    let (binary, directory) = (env!("CARGO_BIN_EXE_convoke").into(), directory.path().to_owned());
    let cli = Cli { binary, directory, server: None, env: Vec::new() };
    let url = redis.url();
    let measure = || cli.run(["bench", "mesh", "--quick", "--json", "--redis", &url]);
    let (one, other) = tokio::join!(measure(), measure());
    for measured in [one, other] {
        let figures = measured.json().to_string();
        assert!(figures.contains("perSecondOfFloor64"), "{figures}");
    }
    let left: Vec<String> = redis::cmd("KEYS").arg("*").query_async(&mut probe).await.expect("lists");
    assert_eq!(left, ["theirs"]);
}
