//! Leases in a bucket: on S3, or on any object store that has conditional writes.
//!
//! A namespace is a folder, `plugin=coordinator/namespace={name}/`, laid out as s3db.js lays it out, so that its workers and
//! ours elect one leader between them: `state.json` says who leads, `workers/worker={id}.json` who is there, `metadata.json`
//! who came first. Only `state.json` is ever contended for, and it is only ever written on condition: created where there is
//! none, replaced where it is still what was read.
//!
//! A bucket has no clock that could end a lease. Whoever wants to lead watches: a state that nobody has changed for the
//! length of its lease, by the watcher's own monotonic clock since it first saw it, belongs to nobody (`sighting`). Wall
//! clocks are written for others to read and are never believed, so that machines whose clocks are apart still have one
//! leader. The price is that a newcomer waits out a whole lease before it takes over from the dead.
//!
//! A write whose answer was lost may have won: each carries an id of its own, and the state is read back. One that arrives
//! after it was given up is recognised by its id and taken over under a new epoch. Nothing is retried behind the caller's
//! back but a 409, which says that nothing happened.

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
pub use leases::S3Leases;
pub use wire::Requests;
