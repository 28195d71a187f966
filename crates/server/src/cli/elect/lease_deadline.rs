//! The deadline of a command: it must have ended before its lease expires.

use std::time::Duration;

use crate::cli::supervise::{Deadline, Moment};

/// A heartbeat comes within this part of the lease, or the command would be stopped before its first renewal.
pub const HEARTBEAT_PART: u32 = 2;
/// The command gets SIGKILL this part of the lease before the lease becomes uncertain.
const MARGIN_PART: u32 = 20;
/// The command gets SIGTERM this part of the lease before SIGKILL.
const GRACE_PART: u32 = 5;

/// Returns the deadline for a lease of `ttl` that is certain for `left` after `now`. With the times that `--ttl` sets,
/// a heartbeat comes every third of the lease and is retried after a ninth if it fails at once: after two or three
/// failures, or one that hangs, the command is stopped. With any configuration a heartbeat comes within [`HEARTBEAT_PART`]
/// of the lease, in time for a slow reply.
pub fn lease_deadline(now: Moment, left: Duration, ttl: Duration, grace: Duration) -> Deadline {
    let kill_after = left.saturating_sub(ttl / MARGIN_PART);
    let terminate_after = kill_after.saturating_sub(grace.min(ttl / GRACE_PART));
    Deadline { terminate_at: now.after(terminate_after), kill_at: now.after(kill_after) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_command_is_asked_to_end_and_is_dead_before_the_lease_is_uncertain() {
        let now = Moment::now();
        let spans = |left, grace| {
            let deadline = lease_deadline(now, left, s(20), grace);
            (deadline.terminate_at.since(now), deadline.kill_at.since(now))
        };
        assert_eq!(spans(s(18), s(10)), (s(13), s(17)));
        assert_eq!(spans(s(18), s(1)), (s(16), s(17)), "a short grace leaves the command more time");
        assert_eq!(spans(s(0), s(10)), (s(0), s(0)));
    }
}
