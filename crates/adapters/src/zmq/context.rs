//! The threads that ZeroMQ's connections run on. They start with the first socket and stay: a socket that was dropped still
//! has its last words to send.

use std::sync::LazyLock;

use omq_tokio::Context;

static ROUTERS: LazyLock<Context> = LazyLock::new(|| Context::with_name("router"));
static DEALERS: LazyLock<Context> = LazyLock::new(|| Context::with_name("dealer"));

pub(super) fn routers() -> &'static Context {
    &ROUTERS
}

pub(super) fn dealers() -> &'static Context {
    &DEALERS
}
