//! The ZeroMQ sockets, with real dealers and with handwritten peers that break the protocol.
#![cfg(feature = "zmq")]

mod dealer;
mod hostile;
mod port;
mod routing_id;
mod security;
mod stage;
