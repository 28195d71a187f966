//! Request and reply over NATS, by as much of its text protocol as that takes.
//!
//! The client is our own, because a library would be a dependency of every server for the sake of a comparison. It
//! works like the mesh's client: one connection, one task that reads, one that writes all messages that have gathered.

use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::mpsc;

use super::slots::{Slots, message};

const SUBJECT: &str = "convoke.bench";
const INBOX: &str = "_INBOX.convoke.bench";
/// More than NATS sends in one message by default.
const PAYLOAD_BYTES_MAX: usize = 1 << 20;

/// Writes in order.
type WriteQueue = mpsc::UnboundedSender<Vec<u8>>;

#[derive(Clone)]
pub struct Nats {
    writes: WriteQueue,
    slots: Arc<Slots>,
}

impl Nats {
    pub async fn connect(address: &str) -> Result<Nats> {
        let slots = Arc::new(Slots::new());
        let waiting = slots.clone();
        let writes = subscribe(address, INBOX, move |_, delivery| waiting.complete(&delivery.payload)).await?;
        Ok(Nats { writes, slots })
    }

    pub async fn round_trip(&self, place: usize) -> Result<()> {
        let received = self.slots.wait(place)?;
        self.writes.send(publication(SUBJECT, Some(INBOX), &message(place))).ok().context("NATS is gone")?;
        Ok(received.await?)
    }
}

/// Sends received messages back for as long as the connection lasts.
pub async fn reply(address: &str) -> Result<()> {
    subscribe(address, SUBJECT, |writes, delivery| {
        if let Some(reply) = &delivery.reply {
            let _ = writes.send(publication(reply, None, &delivery.payload));
        }
    })
    .await?;
    Ok(())
}

struct Delivery {
    reply: Option<String>,
    payload: Vec<u8>,
}

async fn subscribe(
    address: &str,
    subject: &str,
    on_message: impl Fn(&WriteQueue, Delivery) + Send + Sync + 'static,
) -> Result<WriteQueue> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let (reader, writer) = stream.into_split();
    let mut reader = BufReader::with_capacity(64 * 1024, reader);
    let (writes, pages) = mpsc::unbounded_channel();
    tokio::spawn(write(writer, pages));
    let hello = format!("CONNECT {{\"verbose\":false,\"pedantic\":false}}\r\nSUB {subject} 1\r\nPING\r\n");
    writes.send(hello.into_bytes()).ok().context("NATS is gone")?;
    // The reply to the ping confirms the subscription.
    let mut line = String::new();
    while line != "PONG\r\n" {
        line.clear();
        if reader.read_line(&mut line).await? == 0 || line.starts_with("-ERR") {
            bail!("NATS refused us: {line}");
        }
    }
    let own = writes.clone();
    tokio::spawn(async move {
        if let Err(error) = read(reader, &own, on_message).await {
            eprintln!("NATS: {error}");
        }
    });
    Ok(writes)
}

async fn read(
    mut reader: BufReader<OwnedReadHalf>,
    writes: &WriteQueue,
    on_message: impl Fn(&WriteQueue, Delivery),
) -> Result<()> {
    let mut line = String::new();
    loop {
        line.clear();
        if reader.read_line(&mut line).await? == 0 {
            return Ok(());
        }
        match heading(&line) {
            Heading::Message { reply, bytes } => {
                let mut payload = vec![0; bytes + 2];
                reader.read_exact(&mut payload).await?;
                payload.truncate(bytes);
                on_message(writes, Delivery { reply, payload });
            }
            Heading::Ping => writes.send(b"PONG\r\n".to_vec()).ok().context("the connection is gone")?,
            Heading::Other => {}
            Heading::Error => bail!("it sent {line}"),
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Heading {
    Message { reply: Option<String>, bytes: usize },
    Ping,
    Other,
    Error,
}

fn heading(line: &str) -> Heading {
    let words: Vec<&str> = line.split_whitespace().collect();
    let message = |reply: Option<&str>, bytes: &str| match bytes.parse() {
        Ok(bytes) if bytes <= PAYLOAD_BYTES_MAX => Heading::Message { reply: reply.map(str::to_owned), bytes },
        _ => Heading::Error,
    };
    match words[..] {
        ["MSG", _, _, bytes] => message(None, bytes),
        ["MSG", _, _, reply, bytes] => message(Some(reply), bytes),
        ["MSG" | "-ERR", ..] => Heading::Error,
        ["PING"] => Heading::Ping,
        _ => Heading::Other,
    }
}

fn publication(subject: &str, reply: Option<&str>, payload: &[u8]) -> Vec<u8> {
    let reply = reply.map(|reply| format!("{reply} ")).unwrap_or_default();
    let mut text = format!("PUB {subject} {reply}{}\r\n", payload.len()).into_bytes();
    text.extend_from_slice(payload);
    text.extend_from_slice(b"\r\n");
    text
}

/// Writes all gathered messages at once.
async fn write(mut writer: OwnedWriteHalf, mut pages: mpsc::UnboundedReceiver<Vec<u8>>) {
    while let Some(mut text) = pages.recv().await {
        while let Ok(more) = pages.try_recv() {
            text.extend_from_slice(&more);
        }
        if writer.write_all(&text).await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_server_says_is_told_apart() {
        let message = |reply: Option<&str>, bytes| Heading::Message { reply: reply.map(str::to_owned), bytes };
        assert_eq!(heading("MSG a 1 5\r\n"), message(None, 5));
        assert_eq!(heading("MSG a 1 _INBOX.b 11\r\n"), message(Some("_INBOX.b"), 11));
        assert_eq!(heading("PING\r\n"), Heading::Ping);
        for line in ["MSG a\r\n", "MSG a 1 x\r\n", "MSG a 1 99999999999\r\n", "-ERR 'no'\r\n"] {
            assert_eq!(heading(line), Heading::Error, "{line}");
        }
        assert_eq!(heading("INFO {}\r\n"), Heading::Other);
        assert_eq!(publication("a", Some("b"), b"hi"), b"PUB a b 2\r\nhi\r\n");
    }
}
