//! Signals that ask the process to end.

/// Completes at the next SIGTERM or SIGINT.
#[cfg(unix)]
pub(crate) async fn termination() -> std::io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(())
}

#[cfg(not(unix))]
pub(crate) async fn termination() -> std::io::Result<()> {
    tokio::signal::ctrl_c().await
}
