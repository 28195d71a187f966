//! A proxy that loses one answer on demand: the request arrives, and the connection breaks instead of the answer.
//!
//! It knows no protocol: the request is found by a word in it, which must not stand in any other.

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
    word: Mutex<Option<String>>,
    has_lost_one: AtomicBool,
}

impl Trap {
    fn is_sprung_by(&self, request: &[u8]) -> bool {
        let mut word = self.word.lock();
        let is_in = |word: &String| request.windows(word.len()).any(|part| part == word.as_bytes());
        word.take_if(|word| is_in(word)).is_some()
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

    /// The answer to the next request that has this word in it is lost.
    pub fn lose_the_answer_to(&self, word: &str) {
        self.trap.has_lost_one.store(false, Ordering::SeqCst);
        *self.trap.word.lock() = Some(word.to_owned());
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

/// Until either side is done, or the answer to a request that sprang the trap is there.
async fn relay(mut client: TcpStream, mut server: TcpStream, trap: Arc<Trap>) {
    let (mut request, mut answer) = (vec![0; CHUNK_BYTES], vec![0; CHUNK_BYTES]);
    loop {
        tokio::select! {
            read = client.read(&mut request) => {
                let Ok(length @ 1..) = read else { return };
                let is_sprung = trap.is_sprung_by(&request[..length]);
                if server.write_all(&request[..length]).await.is_err() {
                    return;
                }
                if is_sprung && matches!(server.read(&mut answer).await, Ok(1..)) {
                    trap.has_lost_one.store(true, Ordering::SeqCst);
                    return;
                }
            }
            read = server.read(&mut answer) => {
                let Ok(length @ 1..) = read else { return };
                if client.write_all(&answer[..length]).await.is_err() {
                    return;
                }
            }
        }
    }
}
