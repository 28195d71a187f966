//! One node, with and without a port.

use convoke::{Client, Coordinator, Error, Worker};
use convoke_core::ports::store::NodeRecord;

use super::{Double, Running, double, in_time};

fn at(directory: &tempfile::TempDir) -> String {
    format!("sqlite:{}", directory.path().join("app.db").display())
}

async fn start(directory: &tempfile::TempDir) -> Coordinator {
    let builder = Coordinator::builder().node_id("n1").store(at(directory)).http("127.0.0.1:0");
    let coordinator = builder.start().await.expect("it starts");
    in_time("readiness", coordinator.ready()).await.expect("it is ready");
    coordinator
}

async fn registered(coordinator: &Coordinator) -> NodeRecord {
    let nodes = coordinator.node().store().nodes().await.expect("the registry");
    nodes.into_iter().find(|node| node.node_id == *coordinator.node_id()).expect("it is there")
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_are_run_in_the_process_and_over_http_until_it_drains() {
    let directory = tempfile::tempdir().expect("a directory");
    let coordinator = start(&directory).await;
    assert_eq!(coordinator.node_id().as_str(), "n1");
    let url = format!("http://{}", coordinator.address().expect("a port"));

    let inside = Running::start(coordinator.worker().queues(["inside"]).handle(double));
    let outside = Worker::connect(&url).await.expect("an address").queues(["outside"]).handle(double);
    let outside = Running::start(outside);
    let clients = [coordinator.client(), Client::connect(&url).await.expect("an address")];
    for (client, queue) in clients.iter().zip(["outside", "inside"]) {
        let handle = client.enqueue(Double(21)).queue(queue).await.expect("enqueued");
        assert_eq!(in_time("the result", handle.wait()).await.expect("it completes"), 42);
    }

    let api = convoke::connect::http(&url, None).expect("an address");
    let (_, metrics) = api.send(axum::http::Method::GET, "/metrics", None).await.expect("a response");
    let metrics = String::from_utf8_lossy(&metrics);
    assert!(metrics.contains("convoke_http_requests_total{status=\"2xx\"}"), "{metrics}");

    inside.stop().await;
    outside.stop().await;
    let waiting = clients[0].enqueue(Double(1)).queue("later").await.expect("enqueued");
    in_time("the drain", coordinator.drain()).await.expect("it is clean");
    assert!(tokio::net::TcpStream::connect(coordinator.address().expect("a port")).await.is_err(), "nobody listens");
    assert!(registered(&coordinator).await.state.is_gone(), "it has left the registry");
    in_time("the second drain", coordinator.drain()).await.expect("the result of the first");
    in_time("the end of the server", coordinator.http_ended()).await;
    let id = waiting.id();
    drop((coordinator, clients, waiting));

    // The file is free again, and everything that was acknowledged is in it.
    let again = start(&directory).await;
    let worker = Running::start(again.worker().queues(["later"]).handle(double));
    let job = in_time("the job", async {
        loop {
            let job = again.client().job(id).await.expect("it is kept");
            if !job.status.is_live() {
                return job;
            }
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    });
    assert_eq!(job.await.result.expect("a result").to::<u64>().expect("a number"), 2);
    worker.stop().await;
    in_time("the drain", again.drain()).await.expect("it is clean");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_dropped_stops_and_frees_its_port_and_its_file() {
    let directory = tempfile::tempdir().expect("a directory");
    let coordinator = start(&directory).await;
    let address = coordinator.address().expect("a port");
    // A client whose connection stays open.
    let client = Client::connect(&format!("http://{address}")).await.expect("an address");
    let enqueued = client.enqueue(Double(4)).await.expect("enqueued").id();
    let second = Coordinator::builder().store(at(&directory)).start().await.err().expect("the file has one server");
    assert!(matches!(second, Error::Coordinator(convoke_core::Error::Conflict(_))), "{second}");
    drop(coordinator);
    // Its tasks end at their next check.
    let again = in_time("the file", async {
        loop {
            match Coordinator::builder().store(at(&directory)).http(address.to_string()).start().await {
                Ok(again) => return again,
                Err(_) => tokio::time::sleep(std::time::Duration::from_millis(5)).await,
            }
        }
    })
    .await;
    assert_eq!(again.client().job(enqueued).await.expect("it is kept").id, enqueued);
    in_time("the drain", again.drain()).await.expect("it is clean");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_can_be_requested_from_outside() {
    let directory = tempfile::tempdir().expect("a directory");
    let coordinator = start(&directory).await;
    let api = convoke::connect::http(&format!("http://{}", coordinator.address().expect("a port")), None);
    let path = format!("/v1/nodes/{}/drain", coordinator.node_id());
    let asked = api.expect("an address").send(axum::http::Method::POST, &path, Some("{}".into())).await;
    assert_eq!(asked.expect("a response").0, 202);
    in_time("the request", coordinator.drain_requested()).await;
    in_time("the drain", coordinator.drain()).await.expect("it is clean");
}

#[cfg(feature = "zmq")]
#[tokio::test(flavor = "multi_thread")]
async fn it_coordinates_shards_where_it_is_told_to() {
    use convoke::coordinator::ShardsState;
    let builder = Coordinator::builder().store("memory:").shards("tcp://127.0.0.1:0");
    let coordinator = builder.start().await.expect("it starts");
    in_time("readiness", coordinator.ready()).await.expect("it listens");
    let Some(ShardsState::Listening(address)) = coordinator.shards() else { panic!("{:?}", coordinator.shards()) };
    let worker = convoke::ShardWorker::connect(&address, "service", "w1", 2).await.expect("it connects");
    in_time("the coordinator's reply", worker.ready()).await;
    in_time("shards", async {
        while worker.shards() != [0, 1] {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    })
    .await;

    let second = Coordinator::builder().store("memory:").shards(address).start().await.expect("it starts");
    let refused = in_time("readiness", second.ready()).await.expect_err("the address is taken");
    assert!(refused.to_string().contains("in use"), "{refused}");
}
