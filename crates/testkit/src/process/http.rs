//! HTTP/1.1 by hand: one connection a request.
//!
//! A request that gets no complete response is an error, never a guess: in the record of a test, an enqueue without its 201
//! was not acknowledged.

use std::io::{Error, ErrorKind, Result};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::waiting::eventually;

/// Timeout of a response. Longer than the longest poll that tests ask for.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(90);

/// The address of a server and the token of its client. Clones follow the server if it restarts on another port.
#[derive(Debug, Clone)]
pub struct Http {
    address: Arc<RwLock<SocketAddr>>,
    token: Option<String>,
}

#[derive(Debug, Clone)]
pub struct HttpResponse {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Http {
    pub fn new(address: SocketAddr) -> Self {
        Http { address: Arc::new(RwLock::new(address)), token: None }
    }

    pub fn with_token(&self, token: &str) -> Self {
        Http { address: self.address.clone(), token: Some(token.into()) }
    }

    pub fn address(&self) -> SocketAddr {
        *self.address.read()
    }

    /// The server came back elsewhere.
    pub fn moved(&self, address: SocketAddr) {
        *self.address.write() = address;
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address())
    }

    pub async fn get(&self, path: &str) -> Result<HttpResponse> {
        self.send("GET", path, None).await
    }

    pub async fn post(&self, path: &str, body: Value) -> Result<HttpResponse> {
        self.send("POST", path, Some(body)).await
    }

    pub async fn send(&self, method: &str, path: &str, body: Option<Value>) -> Result<HttpResponse> {
        let body = body.map(|body| body.to_string().into_bytes());
        self.send_bytes(method, path, body.as_deref()).await
    }

    /// A body that need not be JSON, nor text.
    pub async fn send_bytes(&self, method: &str, path: &str, body: Option<&[u8]>) -> Result<HttpResponse> {
        let mut request = self.head(method, path, "connection: close\r\n");
        if let Some(body) = body {
            request.push_str(&format!("content-type: application/json\r\ncontent-length: {}\r\n", body.len()));
        }
        request.push_str("\r\n");
        let mut bytes = request.into_bytes();
        bytes.extend_from_slice(body.unwrap_or_default());
        self.send_raw(&bytes).await
    }

    /// Sends these bytes on a new connection, and reads until the response is complete.
    pub async fn send_raw(&self, request: &[u8]) -> Result<HttpResponse> {
        let exchange = async {
            let mut stream = self.open().await?;
            // A server may refuse a large body before it has read it all and close: its response arrives nevertheless.
            let written = stream.write_all(request).await;
            match read_response(&mut stream).await {
                Ok(response) => Ok(response),
                Err(error) => Err(written.err().unwrap_or(error)),
            }
        };
        match tokio::time::timeout(RESPONSE_TIMEOUT, exchange).await {
            Ok(response) => response,
            Err(_) => Err(Error::new(ErrorKind::TimedOut, format!("no response within {RESPONSE_TIMEOUT:?}"))),
        }
    }

    /// Repeats a GET until it succeeds: some responses of a cluster that recovers are 503 at first.
    pub async fn read(&self, path: &str) -> Value {
        eventually(&format!("GET {path}"), || async {
            let response = self.get(path).await.ok()?;
            (response.status != 503).then(|| response.expect(200))
        })
        .await
    }

    /// All of a list that is given in pages.
    pub async fn all(&self, path: &str, field: &str) -> Vec<Value> {
        let mut found = Vec::new();
        let mut cursor: Option<String> = None;
        loop {
            let separator = if path.contains('?') { '&' } else { '?' };
            let page = match &cursor {
                Some(cursor) => format!("{path}{separator}limit=1000&cursor={cursor}"),
                None => format!("{path}{separator}limit=1000"),
            };
            let response = self.read(&page).await;
            found.extend(response[field].as_array().unwrap_or_else(|| panic!("{page} has no {field}")).iter().cloned());
            match response["nextCursor"].as_str() {
                Some(next) => cursor = Some(next.to_owned()),
                None => return found,
            }
        }
    }

    /// The value of a metric, summed over its series that have all of `labels`.
    pub async fn metric(&self, name: &str, labels: &[&str]) -> f64 {
        let text = self.get("/metrics").await.expect("a response").text();
        let series = text.lines().filter(|line| {
            let rest = line.strip_prefix(name).unwrap_or_default();
            (rest.starts_with('{') || rest.starts_with(' ')) && labels.iter().all(|label| rest.contains(label))
        });
        series.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
    }

    pub(super) async fn open(&self) -> Result<TcpStream> {
        let stream = TcpStream::connect(self.address()).await?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    /// The start of a request, up to and without the empty line.
    pub(super) fn head(&self, method: &str, path: &str, headers: &str) -> String {
        let address = self.address();
        let token = match &self.token {
            Some(token) => format!("authorization: Bearer {token}\r\n"),
            None => String::new(),
        };
        format!("{method} {path} HTTP/1.1\r\nhost: {address}\r\n{token}{headers}")
    }
}

impl HttpResponse {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON; null where it is none.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or(Value::Null)
    }

    /// The body as JSON, of a response that must have this status.
    #[track_caller]
    pub fn expect(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.text());
        self.json()
    }
}

async fn read_response(stream: &mut TcpStream) -> Result<HttpResponse> {
    let mut bytes = Vec::new();
    let head_end = loop {
        if let Some(end) = find(&bytes, b"\r\n\r\n") {
            break end;
        }
        fill(stream, &mut bytes).await?;
    };
    let (status, headers) = parse_head(&bytes[..head_end])?;
    let mut response = HttpResponse { status, headers, body: bytes.split_off(head_end + 4) };
    if response.header("transfer-encoding").is_some_and(|it| it.eq_ignore_ascii_case("chunked")) {
        response.body = read_chunks(stream, std::mem::take(&mut response.body)).await?;
    } else if let Some(length) = response.header("content-length").and_then(|it| it.parse::<usize>().ok()) {
        while response.body.len() < length {
            fill(stream, &mut response.body).await?;
        }
        response.body.truncate(length);
    } else if status != 204 && status != 304 {
        stream.read_to_end(&mut response.body).await?;
    }
    Ok(response)
}

pub(super) fn parse_head(head: &[u8]) -> Result<(u16, Vec<(String, String)>)> {
    let head = String::from_utf8_lossy(head);
    let mut lines = head.split("\r\n");
    let first = lines.next().unwrap_or_default();
    let status = first.split(' ').nth(1).and_then(|code| code.parse().ok());
    let status = status.ok_or_else(|| Error::new(ErrorKind::InvalidData, format!("not a response: {first:?}")))?;
    let headers = lines.filter_map(|line| line.split_once(':'));
    Ok((status, headers.map(|(key, value)| (key.trim().to_owned(), value.trim().to_owned())).collect()))
}

async fn read_chunks(stream: &mut TcpStream, mut rest: Vec<u8>) -> Result<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let line_end = loop {
            if let Some(end) = find(&rest, b"\r\n") {
                break end;
            }
            fill(stream, &mut rest).await?;
        };
        let size = chunk_size(&rest[..line_end])?;
        let data = line_end + 2;
        while rest.len() < data + size + 2 {
            fill(stream, &mut rest).await?;
        }
        body.extend_from_slice(&rest[data..data + size]);
        rest.drain(..data + size + 2);
        if size == 0 {
            return Ok(body);
        }
    }
}

pub(super) fn chunk_size(line: &[u8]) -> Result<usize> {
    let text = String::from_utf8_lossy(line);
    let digits = text.split(';').next().unwrap_or_default().trim();
    usize::from_str_radix(digits, 16)
        .map_err(|_| Error::new(ErrorKind::InvalidData, format!("not the size of a chunk: {text:?}")))
}

/// Reads what there is; an end of the stream here is one in the middle of a response.
pub(super) async fn fill(stream: &mut TcpStream, bytes: &mut Vec<u8>) -> Result<()> {
    match stream.read_buf(bytes).await? {
        0 => Err(Error::new(ErrorKind::UnexpectedEof, "the connection ended in the middle of a response")),
        _ => Ok(()),
    }
}

pub(super) fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    /// Sends `reply` on every connection, in pieces of `piece` bytes.
    async fn served(reply: &'static [u8], piece: usize) -> Http {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let http = Http::new(listener.local_addr().expect("its address"));
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut request = Vec::new();
                while find(&request, b"\r\n\r\n").is_none() && stream.read_buf(&mut request).await.is_ok_and(|n| n > 0)
                {
                }
                for part in reply.chunks(piece) {
                    let _ = stream.write_all(part).await;
                    let _ = stream.flush().await;
                    tokio::task::yield_now().await;
                }
            }
        });
        http
    }

    #[tokio::test]
    async fn a_body_of_known_length_is_read_whole() {
        for piece in [1, 7, 1000] {
            let http = served(b"HTTP/1.1 201 Created\r\nContent-Length: 8\r\nX-A: b\r\n\r\n{\"a\": 1}", piece).await;
            let response = http.get("/").await.expect("a response");
            assert_eq!((response.status, response.header("x-a")), (201, Some("b")));
            assert_eq!(response.json()["a"], 1);
        }
    }

    #[tokio::test]
    async fn chunks_are_put_together() {
        for piece in [1, 5, 1000] {
            let http = served(
                b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\nA;x=y\r\n0123456789\r\n0\r\n\r\n",
                piece,
            )
            .await;
            assert_eq!(http.get("/").await.expect("a response").text(), "abc0123456789");
        }
    }

    #[tokio::test]
    async fn an_answer_that_is_cut_short_is_an_error() {
        let http = served(b"HTTP/1.1 201 Created\r\nContent-Length: 100\r\n\r\nabc", 1000).await;
        let error = http.get("/").await.expect_err("no complete response");
        assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
    }
}
