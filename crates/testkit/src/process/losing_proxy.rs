//! A proxy that loses one response on demand: the request arrives, and the connection breaks instead of the response.
//!
//! It knows no protocol: the request is found by a text in it, which must not be in any other.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;

const CHUNK_BYTES: usize = 64 << 10;

pub struct LosingProxy {
    address: SocketAddr,
    trap: Arc<Trap>,
    accepting: AbortHandle,
}

#[derive(Default)]
struct Trap {
    text: Mutex<Option<String>>,
    has_lost_one: AtomicBool,
}

impl Trap {
    fn is_sprung_by(&self, request: &[u8]) -> bool {
        let mut text = self.text.lock();
        let is_in = |text: &String| request.windows(text.len()).any(|part| part == text.as_bytes());
        text.take_if(|text| is_in(text)).is_some()
    }
}

impl LosingProxy {
    pub async fn to(target: SocketAddr) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
        let address = listener.local_addr().expect("it has an address");
        let trap = Arc::new(Trap::default());
        let shared = trap.clone();
        let accepting = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = TcpStream::connect(target).await.expect("the server is there");
                tokio::spawn(relay(client, server, shared.clone()));
            }
        });
        LosingProxy { address, trap, accepting: accepting.abort_handle() }
    }

    /// Where to connect instead of to the server.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Loses the response to the next request that contains this text.
    pub fn lose_response_to(&self, text: &str) {
        self.trap.has_lost_one.store(false, Ordering::SeqCst);
        *self.trap.text.lock() = Some(text.to_owned());
    }

    /// Whether it was: where not, a test shows nothing.
    pub fn has_lost_one(&self) -> bool {
        self.trap.has_lost_one.load(Ordering::SeqCst)
    }
}

impl Drop for LosingProxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// Forwards until either side is done, or the response to the request with the text arrives.
async fn relay(mut client: TcpStream, mut server: TcpStream, trap: Arc<Trap>) {
    let (mut request, mut response) = (vec![0; CHUNK_BYTES], vec![0; CHUNK_BYTES]);
    loop {
        tokio::select! {
            read = client.read(&mut request) => {
                let Ok(length @ 1..) = read else { return };
                let is_sprung = trap.is_sprung_by(&request[..length]);
                if server.write_all(&request[..length]).await.is_err() {
                    return;
                }
                if is_sprung && matches!(server.read(&mut response).await, Ok(1..)) {
                    trap.has_lost_one.store(true, Ordering::SeqCst);
                    return;
                }
            }
            read = server.read(&mut response) => {
                let Ok(length @ 1..) = read else { return };
                if client.write_all(&response[..length]).await.is_err() {
                    return;
                }
            }
        }
    }
}
