//! A connection that ends when its client stops reading.
//!
//! Data that waits to be written takes memory. A client that keeps its connection open without reading would hold that
//! memory forever, so a write without progress for [`STALLED_MAX`] fails, and the connection with it.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

const STALLED_MAX: Duration = Duration::from_secs(30);

pub struct StallTimeout<S> {
    stream: S,
    /// Set while a write waits.
    timer: Option<Pin<Box<Sleep>>>,
}

impl<S> StallTimeout<S> {
    pub fn new(stream: S) -> Self {
        StallTimeout { stream, timer: None }
    }

    fn watch<T>(&mut self, context: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.timer = None;
            return written;
        }
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(STALLED_MAX)));
        ready!(timer.as_mut().poll(context));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client does not read its responses")))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for StallTimeout<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for StallTimeout<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.watch(context, written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        self.watch(context, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let closed = Pin::new(&mut self.stream).poll_shutdown(context);
        self.watch(context, closed)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_write_that_nobody_reads_fails_and_a_slow_one_does_not() {
        let (ours, mut theirs) = tokio::io::duplex(4);
        let mut ours = StallTimeout::new(ours);
        let slow = tokio::spawn(async move {
            let mut read = [0; 40];
            for part in read.chunks_mut(4) {
                tokio::time::sleep(STALLED_MAX / 2).await;
                theirs.read_exact(part).await.expect("more to read");
            }
            theirs
        });
        ours.write_all(&[1; 40]).await.expect("it is read, if slowly");
        let _theirs = slow.await.expect("it reads");
        tokio::time::sleep(STALLED_MAX * 2).await;
        ours.write_all(&[1; 4]).await.expect("a connection that was idle is not stalled");
        let error = ours.write_all(&[1; 4]).await.expect_err("nobody reads");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
}
