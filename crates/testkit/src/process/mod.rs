//! Real processes under test: started on a free port in a directory of their own, signalled, started again.
//!
//! Nothing here knows Convoke's own client: requests are written by hand on a socket, so that a test can also send what no
//! honest client would, and a fault in the client cannot hide one in the server. Whatever a test started dies with it; a
//! test that fails prints the output of its processes.

mod bus_reader;
mod bus_worker;
mod chronicler;
mod cli;
mod explained;
mod fleet;
mod gateway;
mod http;
mod http_proxy;
mod javascript;
mod losing_proxy;
mod moment;
mod node;
mod postgres;
mod program;
mod proxy;
mod puppet;
mod redis;
mod s3;
mod s3_worker;
mod sse;
mod waiting;
mod zmtp;

pub use bus_reader::BusReader;
pub use bus_worker::BusWorker;
pub use chronicler::Chronicler;
pub use cli::{Cli, Output};
pub use explained::{Explained, Reading};
pub use fleet::{Fleet, FleetBuilder, Footprint, Member};
pub use gateway::{GatewayWorker, Handling, Plan, RunEvent};
pub use http::{Http, HttpResponse};
pub use http_proxy::{Fault, HttpProxy, HttpRequest};
pub use javascript::Javascript;
pub use losing_proxy::LosingProxy;
pub use moment::monotonic_ns;
pub use node::{Node, NodeBuilder};
pub use postgres::{Durability, OpenTransaction, Postgres, SharedPostgres};
pub use program::{Launch, Program, Signal, is_alive, number_in, skip_loudly};
pub use proxy::{Proxy, Way};
pub use puppet::{OfferFilter, Puppet};
pub use redis::{RedisBuilder, RedisSentinel, RedisServer};
pub use s3::{IfMatch, S3Bucket, S3Server};
pub use s3_worker::{Bucket, S3Worker, S3WorkerSettings};
pub use sse::{Sse, SseEvent};
pub use waiting::{PATIENCE, eventually, wait_for_value};
pub use zmtp::HandDealer;
