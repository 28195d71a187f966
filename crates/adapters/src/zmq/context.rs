//! The threads of ZeroMQ's connections. They start with the first socket and stay: a dropped socket may still have
//! messages to send.

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
