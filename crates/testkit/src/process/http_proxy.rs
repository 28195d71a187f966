//! A proxy that understands HTTP: it can respond in place of the server, withhold a response, or deliver a request too late.
//!
//! Where [`Proxy`](super::Proxy) cuts a wire, this one decides request by request what happens to it, by a rule of the test.
//! Every request has a connection to the server of its own, and the client's is closed after each response, so that nothing
//! about one request depends on another. All requests are recorded, for the test to count.

use std::io::Result;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::AbortHandle;

use super::http::{fill, find};

/// A request as it was received.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpRequest {
    pub method: String,
    /// With its query.
    pub path: String,
    /// Written on a condition: `If-Match` or `If-None-Match`.
    pub is_conditional: bool,
}

/// A fault of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It goes through.
    None,
    /// The proxy responds with this status; the server does not receive it.
    Refused(u16),
    /// The server executes it, and the proxy responds with this status.
    DoneWithStatus(u16),
    /// The server executes it, and no response is sent.
    DoneButSilent,
    /// The server executes it, and its response is delayed.
    Slow(Duration),
    /// It is held until the test releases it, and is executed then. Its response is lost.
    Held,
    /// Neither the server receives it nor the client a response.
    Lost,
}

type Rule = Box<dyn Fn(&HttpRequest) -> Fault + Send + Sync>;

pub struct HttpProxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    accepting: AbortHandle,
}

struct Shared {
    target: SocketAddr,
    rule: Mutex<Rule>,
    requests: Mutex<Vec<HttpRequest>>,
    /// How often the held requests were released.
    released: watch::Sender<u64>,
    /// How many held requests were executed since.
    arrived: watch::Sender<u64>,
}

impl HttpProxy {
    /// Listens on a free port of this machine and forwards to `target`, at first without a fault.
    pub async fn start(target: SocketAddr) -> HttpProxy {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
        let address = listener.local_addr().expect("a listener has an address");
        let shared = Arc::new(Shared {
            target,
            rule: Mutex::new(Box::new(|_| Fault::None)),
            requests: Mutex::default(),
            released: watch::Sender::new(0),
            arrived: watch::Sender::new(0),
        });
        let accepting = tokio::spawn(accept(listener, shared.clone())).abort_handle();
        HttpProxy { address, shared, accepting }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// From now on this rule decides what happens to each request.
    pub fn rule(&self, rule: impl Fn(&HttpRequest) -> Fault + Send + Sync + 'static) {
        *self.shared.rule.lock() = Box::new(rule);
    }

    /// Everything goes through again.
    pub fn heal(&self) {
        self.rule(|_| Fault::None);
    }

    /// Returns the requests since the last call.
    pub fn take_requests(&self) -> Vec<HttpRequest> {
        std::mem::take(&mut self.shared.requests.lock())
    }

    /// Releases the held requests, and waits until one of them was executed.
    pub async fn release(&self) {
        let mut arrived = self.shared.arrived.subscribe();
        arrived.mark_unchanged();
        self.shared.released.send_modify(|count| *count += 1);
        arrived.changed().await.expect("the proxy lives");
    }
}

impl Drop for HttpProxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    loop {
        let Ok((client, _)) = listener.accept().await else {
            tokio::task::yield_now().await;
            continue;
        };
        let shared = shared.clone();
        tokio::spawn(async move {
            // A client that went away in the middle is what some tests are about.
            let _ = serve(client, &shared).await;
        });
    }
}

async fn serve(mut client: TcpStream, shared: &Shared) -> Result<()> {
    let (request, bytes) = read_request(&mut client).await?;
    let fault = shared.rule.lock()(&request);
    shared.requests.lock().push(request);
    match fault {
        Fault::None => client.write_all(&forward(shared.target, &bytes).await?).await,
        Fault::Refused(status) => client.write_all(&fault_response(status)).await,
        Fault::DoneWithStatus(status) => {
            forward(shared.target, &bytes).await?;
            client.write_all(&fault_response(status)).await
        }
        Fault::DoneButSilent => {
            forward(shared.target, &bytes).await?;
            wait_for_end(client).await
        }
        Fault::Slow(delay) => {
            let response = forward(shared.target, &bytes).await?;
            tokio::time::sleep(delay).await;
            client.write_all(&response).await
        }
        Fault::Held => {
            let mut released = shared.released.subscribe();
            released.mark_unchanged();
            // The client's patience does not end what is on its way.
            let _ = released.changed().await;
            forward(shared.target, &bytes).await?;
            shared.arrived.send_modify(|count| *count += 1);
            Ok(())
        }
        Fault::Lost => wait_for_end(client).await,
    }
}

async fn wait_for_end(mut client: TcpStream) -> Result<()> {
    client.read_to_end(&mut Vec::new()).await?;
    Ok(())
}

fn fault_response(status: u16) -> Vec<u8> {
    let body = format!("<Error><Code>Fault</Code><Message>{status}</Message></Error>");
    let length = body.len();
    let head = format!("HTTP/1.1 {status} Fault\r\ncontent-type: application/xml\r\ncontent-length: {length}\r\n");
    format!("{head}connection: close\r\n\r\n{body}").into_bytes()
}

/// Reads a whole request and the bytes to forward: the server shall close after its response.
async fn read_request(client: &mut TcpStream) -> Result<(HttpRequest, Vec<u8>)> {
    let mut bytes = Vec::new();
    let head_end = loop {
        if let Some(end) = find(&bytes, b"\r\n\r\n") {
            break end;
        }
        fill(client, &mut bytes).await?;
    };
    let head = String::from_utf8_lossy(&bytes[..head_end]).into_owned();
    let mut body = bytes.split_off(head_end + 4);
    let mut lines = head.split("\r\n");
    let mut first = lines.next().unwrap_or_default().split(' ').map(str::to_owned);
    let (method, path) = (first.next().unwrap_or_default(), first.next().unwrap_or_default());
    let headers: Vec<(&str, &str)> = lines.filter_map(|line| line.split_once(": ")).collect();
    let named = |name: &str| headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| *value);
    let length = named("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
    while body.len() < length {
        fill(client, &mut body).await?;
    }
    let is_conditional = method == "PUT" && (named("if-match").is_some() || named("if-none-match").is_some());
    let kept = headers.iter().filter(|(key, _)| !key.eq_ignore_ascii_case("connection"));
    let kept: String = kept.map(|(key, value)| format!("{key}: {value}\r\n")).collect();
    let mut sent = format!("{method} {path} HTTP/1.1\r\n{kept}connection: close\r\n\r\n").into_bytes();
    sent.extend_from_slice(&body);
    Ok((HttpRequest { method, path, is_conditional }, sent))
}

/// Returns the response with the header that closes the connection, which servers do not always send.
async fn forward(target: SocketAddr, request: &[u8]) -> Result<Vec<u8>> {
    let mut server = TcpStream::connect(target).await?;
    server.write_all(request).await?;
    let mut response = Vec::new();
    server.read_to_end(&mut response).await?;
    let line_end = find(&response, b"\r\n").map_or(response.len(), |end| end + 2);
    response.splice(line_end..line_end, *b"connection: close\r\n");
    Ok(response)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::Http;

    /// A server that counts its requests and responds with the number.
    async fn counter() -> (SocketAddr, Arc<Mutex<u32>>) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
        let address = listener.local_addr().expect("its address");
        let done = Arc::<Mutex<u32>>::default();
        let counted = done.clone();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let _ = read_request(&mut stream).await;
                *counted.lock() += 1;
                let text = counted.lock().to_string();
                let response = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{text}", text.len());
                let _ = stream.write_all(response.as_bytes()).await;
            }
        });
        (address, done)
    }

    #[tokio::test]
    async fn a_rule_decides_whether_the_server_gets_the_request_and_which_response_is_sent() {
        let (address, done) = counter().await;
        let proxy = HttpProxy::start(address).await;
        let http = Http::new(proxy.address());
        let send = async || http.send_bytes("PUT", "/a?b", Some(b"c")).await.expect("a response");
        assert_eq!((send().await.text().as_str(), *done.lock()), ("1", 1));
        proxy.rule(|_| Fault::Refused(503));
        assert_eq!((send().await.status, *done.lock()), (503, 1));
        proxy.rule(|_| Fault::DoneWithStatus(409));
        assert_eq!((send().await.status, *done.lock()), (409, 2));
        proxy.rule(|_| Fault::Slow(Duration::from_millis(1)));
        assert_eq!((send().await.text().as_str(), *done.lock()), ("3", 3));
        let came = proxy.take_requests();
        let request = HttpRequest { method: "PUT".into(), path: "/a?b".into(), is_conditional: false };
        assert_eq!(came, vec![request; 4]);
    }

    #[tokio::test]
    async fn what_is_held_arrives_after_its_client_has_gone() {
        let (address, done) = counter().await;
        let proxy = HttpProxy::start(address).await;
        proxy.rule(|_| Fault::Held);
        let http = Http::new(proxy.address());
        let sent = tokio::time::timeout(Duration::from_millis(100), http.get("/")).await;
        assert!(sent.is_err() && *done.lock() == 0, "neither a response nor executed");
        proxy.release().await;
        assert_eq!(*done.lock(), 1);
    }
}
