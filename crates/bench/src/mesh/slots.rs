//! Callers that wait for a reply, by slot number.
//!
//! The minimum for several requests in flight; the peers that the mesh is compared with use nothing more.

use anyhow::{Context as _, Result};
use parking_lot::Mutex;
use tokio::sync::oneshot;

/// More than are ever in flight.
pub const SLOTS: usize = 1_024;
/// Bytes each way, as many as a request of the mesh has here.
pub const MESSAGE_BYTES: usize = 190;

pub struct Slots(Vec<Mutex<Option<oneshot::Sender<()>>>>);

impl Slots {
    pub fn new() -> Self {
        Slots((0..SLOTS).map(|_| Mutex::default()).collect())
    }

    pub fn wait(&self, place: usize) -> Result<oneshot::Receiver<()>> {
        let (complete, received) = oneshot::channel();
        *self.0.get(place).context("there are not as many places")?.lock() = Some(complete);
        Ok(received)
    }

    pub fn complete(&self, message: &[u8]) {
        let waiting = place_of(message).and_then(|place| self.0.get(place)).and_then(|slot| slot.lock().take());
        if let Some(waiting) = waiting {
            let _ = waiting.send(());
        }
    }
}

/// A message that carries its slot number, padded.
pub fn message(place: usize) -> Vec<u8> {
    let mut message = Vec::with_capacity(MESSAGE_BYTES);
    message.extend_from_slice(place.to_string().as_bytes());
    message.resize(MESSAGE_BYTES, b' ');
    message
}

fn place_of(message: &[u8]) -> Option<usize> {
    let number = message.split(|byte| *byte == b' ').next()?;
    std::str::from_utf8(number).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_answer_reaches_the_place_that_waits() {
        let slots = Slots::new();
        let (mut one, other) = (slots.wait(1).expect("a place"), slots.wait(2).expect("a place"));
        assert_eq!(message(2).len(), MESSAGE_BYTES);
        for noise in [&b"x"[..], b"", b"\xff", b"99999", b"7"] {
            slots.complete(noise);
        }
        slots.complete(&message(2));
        assert_eq!(other.await, Ok(()));
        assert!(one.try_recv().is_err(), "this one got no reply");
    }
}
