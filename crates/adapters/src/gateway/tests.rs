//! The client against a server of one connection at a time with scripted replies.

use std::time::Duration;

use bytes::Bytes;
use convoke_core::jobs::JobSpec;
use convoke_core::jobs::link::{ClientLink, Poll, WorkerLink};
use convoke_core::{Error, JobId, JobType, WorkerId};
use http::Method;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use super::{GatewayLink, Http};

/// Replies to each request of one kept-alive connection with the next of `responses`. Returns the requests.
async fn server(responses: Vec<String>) -> (String, JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let served = tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.expect("a client");
        let mut requests = Vec::new();
        for response in responses {
            requests.push(read_request(&mut socket).await);
            socket.write_all(response.as_bytes()).await.expect("written");
        }
        requests
    });
    (url, served)
}

async fn read_request(socket: &mut TcpStream) -> String {
    let mut text = Vec::new();
    loop {
        let mut byte = [0];
        socket.read_exact(&mut byte).await.expect("a request");
        text.push(byte[0]);
        if text.ends_with(b"\r\n\r\n") {
            break;
        }
    }
    let head = String::from_utf8(text).expect("a head");
    let length =
        head.lines().find_map(|line| line.strip_prefix("content-length: ")).map_or(0, |n| n.parse().expect("n"));
    let mut body = vec![0; length];
    socket.read_exact(&mut body).await.expect("a body");
    head + &String::from_utf8(body).expect("text")
}

fn response(status: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

fn job(job_type: &str) -> JobSpec {
    JobSpec::new(JobType::new(job_type).expect("a name"))
}

#[tokio::test]
async fn one_job_is_posted_alone_and_many_as_a_batch_over_one_connection() {
    let id = "01980000-0000-7000-8000-000000000001";
    let (url, served) = server(vec![
        response("201 Created", &format!(r#"{{"id":"{id}","type":"a","status":"pending"}}"#)),
        response("200 OK", &format!(r#"{{"id":"{id}","type":"a","status":"pending"}}"#)),
        response(
            "201 Created",
            &format!(r#"{{"jobs":[{{"id":"{id}","created":true}},{{"id":"{id}","created":false}}]}}"#),
        ),
    ])
    .await;
    let link = GatewayLink::new(Http::connect(&url, Some("s3cret".into())).expect("an address"));
    assert!(link.enqueue(vec![job("a")]).await.expect("made")[0].created);
    assert!(!link.enqueue(vec![job("a")]).await.expect("found")[0].created);
    assert_eq!(link.enqueue(vec![job("a"), job("b")]).await.expect("made").len(), 2);
    let requests = served.await.expect("served");
    assert!(requests[0].starts_with("POST /v1/jobs HTTP/1.1\r\n"), "{}", requests[0]);
    assert!(requests[0].contains("authorization: Bearer s3cret\r\n"), "{}", requests[0]);
    assert!(requests[0].ends_with(r#"{"type":"a"}"#), "{}", requests[0]);
    assert!(requests[2].starts_with("POST /v1/jobs/batch HTTP/1.1\r\n"), "{}", requests[2]);
    assert!(requests[2].ends_with(r#"{"jobs":[{"type":"a"},{"type":"b"}]}"#), "{}", requests[2]);
}

#[tokio::test]
async fn waiting_for_a_job_asks_the_server_to_wait() {
    let (url, served) =
        server(vec![response("404 Not Found", r#"{"error":{"code":"not_found","message":"no"}}"#)]).await;
    let link = GatewayLink::new(Http::connect(&url, None).expect("an address"));
    let id = JobId(uuid::Uuid::nil());
    let error = link.job(id, Some(Duration::from_secs(20))).await.expect_err("unknown");
    assert!(matches!(error, Error::NotFound { what: "job", .. }), "{error:?}");
    let requests = served.await.expect("served");
    assert!(requests[0].starts_with(&format!("GET /v1/jobs/{id}?wait=20s HTTP/1.1\r\n")), "{}", requests[0]);
    assert!(!requests[0].contains("authorization"), "{}", requests[0]);
}

#[tokio::test]
async fn nobody_at_the_address_is_unavailable() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    drop(listener);
    let error = Http::connect(&url, None).expect("an address").send(Method::POST, "/v1/jobs", None).await;
    assert!(matches!(error, Err(Error::Unavailable { .. })), "{error:?}");
}

#[tokio::test]
async fn of_several_nodes_the_next_is_asked_where_one_is_away_and_the_one_that_answers_is_kept() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let away = format!("http://{}", listener.local_addr().expect("an address"));
    drop(listener);
    let (url, served) = server(vec![response("200 OK", "{}"), response("503 Service Unavailable", "{}")]).await;
    let (other, served_after) = server(vec![response("200 OK", "{}")]).await;
    let http = Http::connect(&format!("{away}, {url},{other}"), None).expect("addresses");
    let heartbeat = || http.send(Method::POST, "/v1/worker/heartbeat", Some(Bytes::from_static(b"{}")));
    assert_eq!(heartbeat().await.expect("a response").0, 200);
    assert_eq!(http.address(), url);
    assert_eq!(heartbeat().await.expect("a response").0, 503);
    assert_eq!(served.await.expect("served").len(), 2);
    assert_eq!(heartbeat().await.expect("a response").0, 200);
    assert_eq!(served_after.await.expect("served").len(), 1, "what a node turned away is asked of the next");
}

#[tokio::test]
async fn an_answer_that_never_comes_is_unknown_for_a_write_and_unavailable_for_a_read() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let http = Http::connect(&format!("http://{}", listener.local_addr().expect("an address")), None).expect("fine");
    let _kept = tokio::spawn(async move {
        let mut open = Vec::new();
        while let Ok((socket, _)) = listener.accept().await {
            open.push(socket);
        }
    });
    let limit = Duration::from_millis(50);
    let written = http.send_within(limit, Method::POST, "/v1/jobs", Some(Bytes::from_static(b"{}"))).await;
    assert!(matches!(written, Err(Error::Unknown { .. })), "{written:?}");
    let read = http.send_within(limit, Method::GET, "/v1/jobs", None).await;
    assert!(matches!(read, Err(Error::Unavailable { .. })), "{read:?}");
}

#[tokio::test]
async fn a_connection_that_breaks_in_mid_answer_leaves_a_write_unknown() {
    let (url, served) = server(vec!["HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{".into()]).await;
    let link = GatewayLink::new(Http::connect(&url, None).expect("an address"));
    let poll = Poll { worker_id: WorkerId::new("w").expect("a name"), max: 1, wait: Duration::from_secs(1) };
    let error = link.poll(poll).await.expect_err("cut short");
    assert!(matches!(error, Error::Unknown { .. }), "{error:?}");
    served.await.expect("served");
}

#[tokio::test]
async fn events_stream_until_the_server_ends() {
    let stream = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n\
                  event: job:completed\ndata: {\"n\":1}\n\nevent: job:failed\ndata: {}\n\n";
    let (url, _served) = server(vec![stream.into()]).await;
    let mut events = Http::connect(&url, None).expect("an address").sse("/v1/events").await.expect("a stream");
    let first = events.next().await.expect("read").expect("an event");
    assert_eq!((first.event.as_str(), first.data.as_str()), ("job:completed", "{\"n\":1}"));
    assert_eq!(events.next().await.expect("read").expect("an event").event, "job:failed");
    assert_eq!(events.next().await.expect("read"), None);
}
