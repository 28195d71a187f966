//! A ZeroMQ DEALER written by hand: ZMTP 3.0 without security, over a plain connection.
//!
//! So light that ten thousand fit into one test, and independent of the library that the coordinator listens with.

use std::io;

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const MORE: u8 = 1;
const LONG: u8 = 2;
const COMMAND: u8 = 4;
const GREETING_BYTES: usize = 64;
const READY: &[u8] = b"\x05READY\x0bSocket-Type\x00\x00\x00\x06DEALER";

pub struct HandDealer {
    stream: TcpStream,
    received: BytesMut,
    /// The frames of an incomplete message.
    frames: Vec<Bytes>,
}

impl HandDealer {
    /// Connects to `tcp://host:port`. Returns after the handshake.
    pub async fn connect(address: &str) -> io::Result<HandDealer> {
        let address = address.strip_prefix("tcp://").unwrap_or(address);
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let mut dealer = HandDealer { stream, received: BytesMut::new(), frames: Vec::new() };
        let mut greeting = vec![0xff, 0, 0, 0, 0, 0, 0, 0, 1, 0x7f, 3, 0];
        greeting.extend(b"NULL");
        greeting.resize(GREETING_BYTES, 0);
        dealer.stream.write_all(&[greeting, frame(COMMAND, READY)].concat()).await?;
        while dealer.received.len() < GREETING_BYTES {
            dealer.read().await?;
        }
        dealer.received.advance(GREETING_BYTES);
        // The other side's READY, which has nothing that matters here.
        dealer.next_frame().await?;
        Ok(dealer)
    }

    pub async fn send(&mut self, message: &[u8]) -> io::Result<()> {
        self.stream.write_all(&frame(0, message)).await
    }

    /// Sends a message of one or more frames.
    pub async fn send_frames(&mut self, frames: &[Bytes]) -> io::Result<()> {
        let last = frames.len().saturating_sub(1);
        let text: Vec<u8> =
            frames.iter().enumerate().flat_map(|(at, body)| frame(if at < last { MORE } else { 0 }, body)).collect();
        self.stream.write_all(&text).await
    }

    /// Receives the next message. Cancel safe.
    pub async fn receive(&mut self) -> io::Result<Vec<Bytes>> {
        loop {
            let (flags, body) = self.next_frame().await?;
            if flags & COMMAND != 0 {
                continue;
            }
            self.frames.push(body);
            if flags & MORE == 0 {
                return Ok(std::mem::take(&mut self.frames));
            }
        }
    }

    async fn next_frame(&mut self) -> io::Result<(u8, Bytes)> {
        loop {
            if let Some(frame) = self.take_frame() {
                return Ok(frame);
            }
            self.read().await?;
        }
    }

    fn take_frame(&mut self) -> Option<(u8, Bytes)> {
        let flags = *self.received.first()?;
        let (head, length) = if flags & LONG == 0 {
            (2, usize::from(*self.received.get(1)?))
        } else {
            let length = u64::from_be_bytes(self.received.get(1..9)?.try_into().ok()?);
            (9, usize::try_from(length).ok()?)
        };
        if self.received.len() < head + length {
            return None;
        }
        self.received.advance(head);
        Some((flags, self.received.split_to(length).freeze()))
    }

    async fn read(&mut self) -> io::Result<()> {
        match self.stream.read_buf(&mut self.received).await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }
}

fn frame(flags: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = match u8::try_from(body.len()) {
        Ok(short) => vec![flags, short],
        Err(_) => [&[flags | LONG][..], &(body.len() as u64).to_be_bytes()].concat(),
    };
    bytes.extend(body);
    bytes
}
