//! Server-sent events, parsed as they arrive.

use std::collections::VecDeque;

use convoke_core::{Error, Result};
use http_body_util::BodyExt;
use hyper::body::Incoming;

const LINE_BYTES_MAX: usize = 8 << 20;

/// One event: its name (`message` if the server set none) and its data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerEvent {
    pub event: String,
    pub data: String,
    /// The value to send as `Last-Event-ID`, if the server numbers its events.
    pub id: Option<String>,
}

pub struct EventStream {
    body: Incoming,
    parser: Parser,
}

impl EventStream {
    pub(super) fn new(body: Incoming) -> Self {
        EventStream { body, parser: Parser::default() }
    }

    /// Returns the next event; `None` once the server has ended the stream. Safe to cancel.
    pub async fn next(&mut self) -> Result<Option<ServerEvent>> {
        loop {
            if let Some(event) = self.parser.ready.pop_front() {
                return Ok(Some(event));
            }
            match self.body.frame().await {
                None => return Ok(None),
                Some(Err(error)) => return Err(Error::unavailable("the event stream", error)),
                Some(Ok(frame)) => {
                    if let Some(data) = frame.data_ref() {
                        self.parser.feed(data)?;
                    }
                }
            }
        }
    }
}

/// Turns bytes into events, however the frames split them.
#[derive(Default)]
struct Parser {
    line: Vec<u8>,
    event: Option<String>,
    data: Option<String>,
    id: Option<String>,
    ready: VecDeque<ServerEvent>,
}

impl Parser {
    fn feed(&mut self, mut bytes: &[u8]) -> Result<()> {
        while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
            self.line.extend_from_slice(&bytes[..end]);
            bytes = &bytes[end + 1..];
            let line = std::mem::take(&mut self.line);
            self.take_line(line.strip_suffix(b"\r").unwrap_or(&line));
        }
        self.line.extend_from_slice(bytes);
        if self.line.len() > LINE_BYTES_MAX {
            return Err(Error::unavailable("the event stream", format!("a line of over {LINE_BYTES_MAX} bytes")));
        }
        Ok(())
    }

    fn take_line(&mut self, line: &[u8]) {
        let line = String::from_utf8_lossy(line);
        if line.is_empty() {
            return self.dispatch();
        }
        let (field, value) = line.split_once(':').unwrap_or((&line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => self.event = Some(value.to_owned()),
            "id" => self.id = Some(value.to_owned()),
            "data" => match &mut self.data {
                Some(data) => {
                    data.push('\n');
                    data.push_str(value);
                }
                none => *none = Some(value.to_owned()),
            },
            // A comment (the field is empty), a retry hint, or a field that a later server may add.
            _ => {}
        }
    }

    fn dispatch(&mut self) {
        let event = self.event.take();
        if let Some(data) = self.data.take() {
            let event = event.unwrap_or_else(|| "message".into());
            self.ready.push_back(ServerEvent { event, data, id: self.id.clone() });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: &str =
        ": hello\r\n\r\nevent: job:completed\nid: 7\ndata: {\"a\":\ndata: 1}\n\ndata:x\n\nevent: none\n\n";

    #[test]
    fn events_are_the_same_wherever_the_bytes_are_cut() {
        for size in 1..STREAM.len() {
            let mut parser = Parser::default();
            for chunk in STREAM.as_bytes().chunks(size) {
                parser.feed(chunk).expect("short lines");
            }
            let events: Vec<_> = parser.ready.iter().map(|e| (e.event.as_str(), e.data.as_str())).collect();
            assert_eq!(events, [("job:completed", "{\"a\":\n1}"), ("message", "x")], "in pieces of {size}");
        }
    }

    #[test]
    fn a_line_without_end_is_refused() {
        let mut parser = Parser::default();
        assert!(parser.feed(&vec![b'a'; LINE_BYTES_MAX + 1]).is_err());
    }
}
