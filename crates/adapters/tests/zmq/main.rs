//! The ZeroMQ sockets, with real dealers and with peers written by hand that keep no rule.
#![cfg(feature = "zmq")]

mod dealer;
mod hostile;
mod port;
mod routing_id;
mod security;
mod stage;
