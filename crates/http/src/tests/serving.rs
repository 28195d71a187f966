//! Over real connections.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::{World, in_time};

struct Server {
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    serving: JoinHandle<()>,
}

impl Server {
    async fn start(world: &World) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let (stop, stopped) = oneshot::channel();
        let shutdown = async { drop(stopped.await) };
        let serving = tokio::spawn(crate::serve(listener, world.state.clone(), shutdown));
        Server { address, stop, serving }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.expect("it accepts")
    }

    async fn stop(self) {
        self.stop.send(()).expect("it still serves");
        in_time("the end", self.serving).await.expect("it does not panic");
    }
}

async fn read_all(stream: &mut TcpStream) -> String {
    let mut text = Vec::new();
    in_time("a response", stream.read_to_end(&mut text)).await.expect("readable");
    String::from_utf8_lossy(&text).into_owned()
}

/// Reads one response that has a content length.
async fn read_one(stream: &mut TcpStream) -> String {
    let mut text = String::new();
    loop {
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            if length.and_then(|length| length.parse().ok()) == Some(body.len()) {
                return text;
            }
        }
        let mut chunk = [0; 4096];
        let count = in_time("a response", stream.read(&mut chunk)).await.expect("readable");
        assert!(count > 0, "closed after {text:?}");
        text.push_str(std::str::from_utf8(&chunk[..count]).expect("text"));
    }
}

fn post(body: &str) -> String {
    format!("POST /v1/jobs HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

#[tokio::test]
async fn pipelined_requests_are_answered_in_order() {
    let world = World::new().await;
    let server = Server::start(&world).await;
    let mut stream = server.connect().await;
    let requests = [
        post(r#"{"type":"a"}"#),
        post("{}"),
        "GET /livez HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n".into(),
    ];
    stream.write_all(requests.concat().as_bytes()).await.expect("writable");
    let text = read_all(&mut stream).await;
    let statuses: Vec<_> = text.split("HTTP/1.1 ").skip(1).map(|response| &response[..3]).collect();
    assert_eq!(statuses, ["201", "400", "200"]);
    server.stop().await;
}

#[tokio::test]
async fn a_client_that_sends_too_much_hears_so() {
    let world = World::new().await;
    let server = Server::start(&world).await;
    let mut stream = server.connect().await;
    let body = vec![b' '; 8 << 20];
    let head = format!("POST /v1/jobs HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: {}\r\n\r\n", body.len());
    stream.write_all(head.as_bytes()).await.expect("writable");
    stream.write_all(&body).await.expect("it reads to the end, although it will refuse");
    let text = read_one(&mut stream).await;
    assert!(text.starts_with("HTTP/1.1 413") && text.contains("too_large"), "{text}");
    server.stop().await;
}

/// Reads the rest of a connection; a reset ends it.
async fn read_rest(stream: &mut TcpStream) -> String {
    let mut text = Vec::new();
    let _ = in_time("a close", stream.read_to_end(&mut text)).await;
    String::from_utf8_lossy(&text).into_owned()
}

#[tokio::test]
async fn a_head_that_cannot_be_read_is_refused_and_harms_nobody() {
    let world = World::new().await;
    let server = Server::start(&world).await;
    let long = format!("GET /{} HTTP/1.1\r\nhost: a\r\n\r\n", "x".repeat(70_000));
    let wide = format!("GET / HTTP/1.1\r\nhost: a\r\n{}\r\n", "a: b\r\n".repeat(120));
    // Too long a path may also be reported as too large a head, depending on how it arrives.
    let heads: [(&str, &[&str]); 8] = [
        ("\0\0\0\0\r\n\r\n", &["400"]),
        ("GET\r\n\r\n", &["400"]),
        ("GET / HTTP/9.9\r\n\r\n", &["400"]),
        ("\u{16}\u{3}\u{1}\u{2}\0\r\n\r\n", &["400"]),
        ("GET / HTTP/1.1\r\nhost: a\r\nx: a\u{1}b\r\n\r\n", &["400"]),
        ("POST /v1/jobs HTTP/1.1\r\nhost: a\r\ncontent-length: -1\r\n\r\n", &["400"]),
        (&long, &["414", "431"]),
        (&wide, &["431"]),
    ];
    for (head, statuses) in heads {
        let mut stream = server.connect().await;
        // It may be closed before all is written.
        let _ = stream.write_all(head.as_bytes()).await;
        let response = read_rest(&mut stream).await;
        let shown: String = head.chars().take(60).collect();
        let status = response.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)).unwrap_or_default();
        assert!(statuses.contains(&status), "{shown:?}: {response:?}");
    }
    let mut stream = server.connect().await;
    stream.write_all(post(r#"{"type":"t"}"#).as_bytes()).await.expect("writable");
    assert!(read_one(&mut stream).await.starts_with("HTTP/1.1 201"));
    server.stop().await;
}

/// The result of a request must be sent, whatever its client sends next.
#[tokio::test]
async fn a_request_is_answered_although_nonsense_follows_it() {
    let world = World::new().await;
    let server = Server::start(&world).await;
    let mut stream = server.connect().await;
    let requests = format!("{}nonsense\r\n\r\n", post(r#"{"type":"t"}"#));
    stream.write_all(requests.as_bytes()).await.expect("writable");
    let text = read_rest(&mut stream).await;
    let statuses: Vec<_> = text.split("HTTP/1.1 ").skip(1).map(|response| &response[..3]).collect();
    assert_eq!(statuses, ["201", "400"]);
    server.stop().await;
}

#[tokio::test]
async fn an_idle_connection_and_a_stream_do_not_hold_up_the_end() {
    let world = World::new().await;
    let server = Server::start(&world).await;
    let mut idle = server.connect().await;
    idle.write_all(post(r#"{"type":"t"}"#).as_bytes()).await.expect("writable");
    read_one(&mut idle).await;
    let mut stream = server.connect().await;
    stream.write_all(b"GET /v1/events HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n").await.expect("writable");
    let mut head = [0; 12];
    in_time("a head", stream.read_exact(&mut head)).await.expect("readable");
    assert_eq!(&head, b"HTTP/1.1 200");
    server.stop().await;
    assert!(read_all(&mut idle).await.is_empty());
    assert!(read_all(&mut stream).await.ends_with("0\r\n\r\n"), "the stream is ended, not cut");
}
