//! A stream of server-sent events, read as they arrive.

use std::io::Result;

use serde_json::Value;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use super::http::{Http, chunk_size, fill, find, parse_head};
use super::waiting::PATIENCE;

pub struct Sse {
    stream: TcpStream,
    /// Read from the socket, chunks not yet taken apart.
    raw: Vec<u8>,
    /// Taken apart, not yet a whole event.
    text: Vec<u8>,
    chunked: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub struct SseEvent {
    pub event: Option<String>,
    pub id: Option<String>,
    pub data: String,
}

impl SseEvent {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.data).unwrap_or(Value::Null)
    }
}

impl Http {
    /// Subscribes; returns once the server has accepted.
    pub async fn sse(&self, path: &str) -> Result<Sse> {
        let mut stream = self.open().await?;
        let request = self.head("GET", path, "accept: text/event-stream\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut raw = Vec::new();
        let end = loop {
            if let Some(end) = find(&raw, b"\r\n\r\n") {
                break end;
            }
            fill(&mut stream, &mut raw).await?;
        };
        let (status, headers) = parse_head(&raw[..end])?;
        raw.drain(..end + 4);
        let is = |name: &str, value: &str| {
            headers.iter().any(|(key, text)| key.eq_ignore_ascii_case(name) && text.starts_with(value))
        };
        assert_eq!(status, 200, "{path}: {}", String::from_utf8_lossy(&raw));
        assert!(is("content-type", "text/event-stream"), "{path} is no event stream: {headers:?}");
        Ok(Sse { stream, raw, text: Vec::new(), chunked: is("transfer-encoding", "chunked") })
    }
}

impl Sse {
    /// Returns the next event; skips comments. An error if the stream ends.
    pub async fn next(&mut self) -> Result<SseEvent> {
        loop {
            if let Some(end) = find(&self.text, b"\n\n") {
                let block: Vec<u8> = self.text.drain(..end + 2).collect();
                if let Some(event) = parse(&String::from_utf8_lossy(&block)) {
                    return Ok(event);
                }
                continue;
            }
            self.more().await?;
        }
    }

    /// Returns the next event that `wanted` accepts. Panics if none arrives.
    pub async fn wait_for(&mut self, what: &str, mut wanted: impl FnMut(&SseEvent) -> bool) -> SseEvent {
        let wait = async {
            loop {
                match self.next().await {
                    Ok(event) if wanted(&event) => return event,
                    Ok(_) => {}
                    Err(error) => panic!("{what}: the stream ended: {error}"),
                }
            }
        };
        match tokio::time::timeout(PATIENCE, wait).await {
            Ok(event) => event,
            Err(_) => panic!("{what}: no such event within {PATIENCE:?}"),
        }
    }

    async fn more(&mut self) -> Result<()> {
        if !self.chunked {
            return fill(&mut self.stream, &mut self.text).await;
        }
        loop {
            if let Some(line_end) = find(&self.raw, b"\r\n") {
                let size = chunk_size(&self.raw[..line_end])?;
                let (data, end) = (line_end + 2, line_end + 4 + size);
                if size == 0 {
                    return Err(std::io::ErrorKind::UnexpectedEof.into());
                }
                if self.raw.len() >= end {
                    self.text.extend_from_slice(&self.raw[data..data + size]);
                    self.raw.drain(..end);
                    return Ok(());
                }
            }
            fill(&mut self.stream, &mut self.raw).await?;
        }
    }
}

fn parse(block: &str) -> Option<SseEvent> {
    let (mut event, mut id, mut data) = (None, None, Vec::new());
    for line in block.lines() {
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value).to_owned();
        match field {
            "event" => event = Some(value),
            "id" => id = Some(value),
            "data" => data.push(value),
            _ => {}
        }
    }
    (!data.is_empty()).then(|| SseEvent { event, id, data: data.join("\n") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_its_fields_and_a_comment_is_none() {
        assert_eq!(parse(": keep-alive\n\n"), None);
        let event = parse("event: job:completed\nid: 7\ndata: {\"a\":\ndata: 1}\n\n").expect("an event");
        assert_eq!((event.event.as_deref(), event.id.as_deref()), (Some("job:completed"), Some("7")));
        assert_eq!(event.json()["a"], 1);
    }
}
