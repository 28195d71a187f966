//! Bare HTTP/1.1: requests that were formatted before; of a response only the status and the length are read.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

const RESPONSE_TIMEOUT: Duration = Duration::from_secs(60);

/// A server to measure.
#[derive(Debug, Clone)]
pub struct Target {
    /// One for each node.
    pub urls: Vec<String>,
    pub token: Option<String>,
    /// The address and prefix of the bus, if workers use the bus.
    pub bus: Option<(String, String)>,
    hosts: Vec<String>,
    next: Arc<AtomicUsize>,
}

impl Target {
    /// Accepts one address, or several with commas between.
    pub fn parse(urls: &str, token: Option<String>) -> Result<Self, String> {
        let hosts = urls.split(',').map(|url| {
            let expected = || format!("expected http://host:port, got {url:?}");
            let host = url.strip_prefix("http://").ok_or_else(expected)?.trim_end_matches('/');
            if host.is_empty() || host.contains('/') {
                return Err(expected());
            }
            Ok(if host.contains(':') { host.to_owned() } else { format!("{host}:80") })
        });
        let hosts = hosts.collect::<Result<Vec<String>, String>>()?;
        let urls = hosts.iter().map(|host| format!("http://{host}")).collect();
        Ok(Target { urls, token, bus: None, hosts, next: Arc::default() })
    }

    /// Returns a whole request, which can be written any number of times.
    pub fn request(&self, method: &str, path: &str, body: &str) -> Vec<u8> {
        let authorization =
            self.token.as_ref().map(|token| format!("authorization: Bearer {token}\r\n")).unwrap_or_default();
        format!(
            "{method} {path} HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\n{authorization}content-length: \
             {}\r\n\r\n{body}",
            self.hosts[0],
            body.len()
        )
        .into_bytes()
    }

    /// Connects to each node in turn.
    pub async fn connect(&self) -> Result<Connection> {
        let host = &self.hosts[self.next.fetch_add(1, Ordering::Relaxed) % self.hosts.len()];
        let stream = TcpStream::connect(host).await;
        let stream = stream.with_context(|| format!("the server at http://{host} cannot be reached"))?;
        stream.set_nodelay(true)?;
        Ok(Connection { stream, buffer: vec![0; 16 << 10] })
    }
}

pub struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Connection {
    /// Sends a request and reads the whole response. Anything but success is an error.
    pub async fn exchange(&mut self, request: &[u8]) -> Result<&[u8]> {
        match tokio::time::timeout(RESPONSE_TIMEOUT, self.exchange_patiently(request)).await {
            Ok(received) => {
                let (status, body) = received?;
                let body = &self.buffer[body];
                if !(200..300).contains(&status) {
                    bail!("the server responded {status}: {}", String::from_utf8_lossy(body));
                }
                Ok(body)
            }
            Err(_) => bail!("no response within {RESPONSE_TIMEOUT:?}"),
        }
    }

    async fn exchange_patiently(&mut self, request: &[u8]) -> Result<(u16, std::ops::Range<usize>)> {
        self.stream.write_all(request).await?;
        let mut filled = 0;
        loop {
            if filled == self.buffer.len() {
                self.buffer.resize(filled * 2, 0);
            }
            let read = self.stream.read(&mut self.buffer[filled..]).await?;
            if read == 0 {
                bail!("the server closed the connection in the middle of a response");
            }
            filled += read;
            let Some(head) = Head::parse(&self.buffer[..filled])? else { continue };
            let whole = head.bytes + head.body_bytes;
            if self.buffer.len() < whole {
                self.buffer.resize(whole, 0);
            }
            if filled < whole {
                self.stream.read_exact(&mut self.buffer[filled..whole]).await?;
            }
            return Ok((head.status, head.bytes..whole));
        }
    }
}

struct Head {
    status: u16,
    bytes: usize,
    body_bytes: usize,
}

impl Head {
    /// Returns `None` while the response is incomplete.
    fn parse(bytes: &[u8]) -> Result<Option<Head>> {
        let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") else { return Ok(None) };
        let head = std::str::from_utf8(&bytes[..end]).context("the head of the response is not text")?;
        let mut lines = head.split("\r\n");
        let status = lines.next().and_then(|line| line.split(' ').nth(1)).and_then(|status| status.parse().ok());
        let status = status.context("the response has no status: is this the address of convoke?")?;
        let length = lines.find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok())?
        });
        let body_bytes = length.or((status == 204).then_some(0)).context("the response has no content-length")?;
        Ok(Some(Head { status, bytes: end + 4, body_bytes }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_host_and_a_port() {
        let target = Target::parse("http://127.0.0.1:3000/", None).expect("valid");
        assert_eq!((&*target.urls[0], &*target.hosts[0]), ("http://127.0.0.1:3000", "127.0.0.1:3000"));
        for bad in ["", "127.0.0.1:3000", "https://a", "http://", "http://a/b"] {
            Target::parse(bad, None).expect_err(bad);
        }
    }

    #[tokio::test]
    async fn an_answer_is_read_whole_however_it_is_cut() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let server = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.expect("accepted");
            let mut request = [0; 1024];
            let _ = stream.read(&mut request).await.expect("read");
            let body = "x".repeat(40_000);
            let response = format!("HTTP/1.1 201 Created\r\nContent-Length: {}\r\n\r\n{body}", body.len());
            for part in response.as_bytes().chunks(7_001) {
                stream.write_all(part).await.expect("written");
                tokio::task::yield_now().await;
            }
            let _ = stream.read(&mut request).await.expect("read");
            stream.write_all(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 2\r\n\r\nno").await.expect("written");
        });
        let target = Target::parse(&url, None).expect("valid");
        let mut connection = target.connect().await.expect("connected");
        let request = target.request("POST", "/", "{}");
        assert_eq!(connection.exchange(&request).await.expect("a response").len(), 40_000);
        let error = connection.exchange(&request).await.expect_err("refused").to_string();
        assert_eq!(error, "the server responded 400: no");
        server.await.expect("served");
    }
}
