//! Leases in a bucket: on S3, or on any object store that has conditional writes.
//!
//! A namespace is a folder, `plugin=coordinator/namespace={name}/`, with the layout of s3db.js, so that its workers and
//! Convoke's elect one leader between them: `state.json` names the leader, `workers/worker={id}.json` are the members,
//! `metadata.json` names the first member. Only `state.json` is contended for, and it is only written on condition:
//! created if there is none, replaced if it is still what was read.
//!
//! A bucket has no clock that could end a lease. Candidates watch: a state that has not changed for the length of its
//! lease, by the watcher's own monotonic clock since it first saw it, has no holder (`sighting`). Wall clocks are
//! written for other readers and are never trusted, so that machines whose clocks differ still have one leader. The
//! price is that a new process waits for a whole lease before it takes over from a dead leader.
//!
//! A write whose reply was lost may have won: each carries an id of its own, and the state is read again. A write that
//! arrives after its caller stopped waiting is recognised by its id and taken over under a new epoch. Only a 409 is
//! retried here, which means that nothing happened.

mod address;
mod client;
mod documents;
mod leases;
mod names;
mod objects;
mod roster;
mod sighting;
mod wire;

pub use address::shown;
#[doc(hidden)]
pub use documents::play_document;
pub use leases::S3Leases;
pub use wire::Requests;
