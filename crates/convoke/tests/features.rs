//! Addresses whose engine was left out: built without features, as an application has the crate by default.
#![cfg(not(feature = "full"))]

use convoke::{Client, Elector, Mesh, Worker, connect};

#[tokio::test]
async fn an_address_whose_feature_is_off_names_the_feature() {
    let expected = |setting: &str, scheme: &str, feature: &str| {
        format!(
            "{setting}: expected an address that this program can open, got a {scheme}: URL, which needs the feature \
             {feature:?} of the crate convoke"
        )
    };
    for (url, scheme) in [("redis://ann:secret@h", "redis"), ("rediss+sentinel://h/main", "rediss+sentinel")] {
        let by_client = Client::connect(url).await.expect_err("no Redis").to_string();
        let by_worker = Worker::connect(url).await.err().expect("no Redis").to_string();
        assert_eq!((by_client, by_worker), (expected("url", scheme, "redis"), expected("url", scheme, "redis")));
        let by_mesh = Mesh::connect(url, "key").await.err().expect("no Redis").to_string();
        assert_eq!(by_mesh, expected("mesh.url", scheme, "redis"));
    }
    for (url, feature) in [
        ("redis://h", "redis"),
        ("postgres://ann:secret@h/db", "postgres"),
        ("s3://bucket/key", "s3"),
        ("sqlite:leases.db", "sqlite"),
    ] {
        let error = Elector::connect(url).await.err().expect("no engine").to_string();
        assert_eq!(error, expected("leases.url", feature, feature));
    }
}

#[tokio::test]
async fn an_address_that_a_setting_never_accepts_names_no_feature() {
    let error = Client::connect("postgres://h/db").await.expect_err("no bus for clients").to_string();
    assert!(error.starts_with("url: expected http://…") && !error.contains("feature"), "{error}");
    let error = connect::leases("amqp://h", "p").await.err().expect("no such engine").to_string();
    assert!(error.starts_with("leases.url: expected postgres://…") && !error.contains("feature"), "{error}");
}
