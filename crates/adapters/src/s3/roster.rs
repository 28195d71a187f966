//! The present members, from one listing: no file of a member is opened.
//!
//! A listing has the time of each file's last write, by the server's clock, and every reply has the server's time; so a
//! member's age does not depend on local clocks. Servers report whole seconds, which is coarse for short times: a
//! member that is listed unchanged for its TTL on the monotonic clock is gone as well, and the TTL of members that this
//! process enrolled is known exactly.
//!
//! The TTL of other members is not in a listing. A fleet has one setting for it: that of this process.

use std::collections::HashMap;
use std::time::Duration;

use jiff::Timestamp;
use object_store::ObjectMeta;
use object_store::path::Path;
use tokio::time::Instant;

use super::names;

/// The TTL of members if this process has never enrolled one: the published default.
const TTL_DEFAULT: Duration = Duration::from_secs(20);
/// The error of two instants in whole seconds, and of two servers of one bucket.
const ROUNDING: Duration = Duration::from_secs(2);
/// Members that are gone for this long, and ten times their TTL, are removed: one for each listing.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(3_600);

#[derive(Debug, Default)]
pub(super) struct Attendance {
    ttl: Option<Duration>,
    mine: HashMap<String, Enrolment>,
    /// Since when each member is listed with the same tag.
    seen: HashMap<String, (String, Instant)>,
    /// The file of a member that is long gone, as of the last listing.
    forgotten: Option<Path>,
}

#[derive(Debug)]
struct Enrolment {
    started_ms: i64,
    /// `None` until a write of it is known to have succeeded.
    written: Option<(String, Instant)>,
}

impl Attendance {
    /// Prepares an enrolment. Returns since when the member is present.
    pub fn will_enroll(&mut self, member: &str, now_ms: i64, ttl: Duration) -> i64 {
        self.ttl = Some(ttl);
        let enrolment = self.mine.entry(member.to_owned());
        enrolment.or_insert(Enrolment { started_ms: now_ms, written: None }).started_ms
    }

    pub fn enrolled(&mut self, member: &str, etag: String, until: Instant) {
        if let Some(enrolment) = self.mine.get_mut(member) {
            enrolment.written = Some((etag, until));
        }
    }

    pub fn withdrawn(&mut self, member: &str) {
        self.mine.remove(member);
    }

    /// Returns the file to remove, if `leader` is of this process: one process of a fleet is enough. Returns each file
    /// once for each listing.
    pub fn take_forgotten(&mut self, leader: &str) -> Option<Path> {
        if self.mine.contains_key(leader) { self.forgotten.take() } else { None }
    }

    /// Returns the listed members that are present, in order. `server_now` is the earliest that the server's clock can
    /// show at `now`.
    pub fn present_members(
        &mut self,
        listing: &[ObjectMeta],
        now: Instant,
        server_now: Option<Timestamp>,
    ) -> Vec<String> {
        let mut present = Vec::new();
        self.forgotten = None;
        let mut seen = HashMap::with_capacity(listing.len());
        let ttl = self.ttl.unwrap_or(TTL_DEFAULT);
        for file in listing {
            let Some(member) = names::member(&file.location) else { continue };
            let etag = file.e_tag.clone().unwrap_or_default();
            let since = match self.seen.get(&member) {
                Some((known, since)) if *known == etag => *since,
                _ => now,
            };
            let age = age(file, server_now);
            let is_present = match self.mine.get(&member).and_then(|enrolment| enrolment.written.as_ref()) {
                Some((written, until)) if *written == etag => now < *until,
                _ => age < ttl + ROUNDING && now.saturating_duration_since(since) < ttl,
            };
            if is_present {
                present.push(member.clone());
            } else if age > FORGOTTEN_AFTER + ttl * 10 {
                self.forgotten = Some(file.location.clone());
            }
            seen.insert(member, (etag, since));
        }
        self.seen = seen;
        present.sort_unstable();
        present.dedup();
        present
    }
}

/// Zero if the age is not known.
fn age(file: &ObjectMeta, server_now: Option<Timestamp>) -> Duration {
    let Some(server_now) = server_now else { return Duration::ZERO };
    let ms = server_now.as_millisecond().saturating_sub(file.last_modified.timestamp_millis());
    Duration::from_millis(u64::try_from(ms).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_secs(20);

    fn at(second: i64) -> Option<Timestamp> {
        Timestamp::from_second(1_700_000_000 + second).ok()
    }

    fn file(name: &str, second: i64, etag: &str) -> ObjectMeta {
        let location = Path::parse(format!("workers/{name}")).expect("a key");
        let last_modified =
            std::time::UNIX_EPOCH + Duration::from_secs(1_700_000_000 + u64::try_from(second).unwrap_or(0));
        let last_modified = last_modified.into();
        ObjectMeta { location, last_modified, size: 1, e_tag: Some(etag.into()), version: None }
    }

    fn present(attendance: &mut Attendance, listing: &[ObjectMeta], now: Instant, second: i64) -> Vec<String> {
        attendance.present_members(listing, now, at(second))
    }

    #[tokio::test(start_paused = true)]
    async fn others_are_judged_by_the_servers_clock() {
        let mut attendance = Attendance::default();
        let listing = [file("worker=b.json", 0, "1"), file("worker=a.json", 10, "1"), file("else", 10, "1")];
        let now = Instant::now();
        assert_eq!(present(&mut attendance, &listing, now, 20), ["a", "b"]);
        assert_eq!(present(&mut attendance, &listing, now, 22), ["a"], "its time and the rounding have passed");
        assert_eq!(present(&mut attendance, &listing, now, 32), Vec::<String>::new());
    }

    #[tokio::test(start_paused = true)]
    async fn who_is_unchanged_for_its_time_is_gone_whatever_the_server_says() {
        let mut attendance = Attendance::default();
        attendance.will_enroll("me", 0, TTL);
        let now = Instant::now();
        let listing = [file("worker=a.json", 0, "1"), file("worker=b.json", 0, "1")];
        assert_eq!(present(&mut attendance, &listing, now, 0), ["a", "b"]);
        let listing = [file("worker=a.json", 0, "1"), file("worker=b.json", 0, "2")];
        assert_eq!(present(&mut attendance, &listing, now + TTL, 0), ["b"]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_this_process_wrote_holds_exactly_as_long_as_it_said() {
        let mut attendance = Attendance::default();
        let now = Instant::now();
        let short = Duration::from_millis(300);
        assert_eq!(attendance.will_enroll("a", 7, short), 7);
        attendance.enrolled("a", "1".into(), now + short);
        assert_eq!(attendance.will_enroll("a", 9, short), 7, "since when it is there does not change");
        let listing = [file("worker=a.json", 0, "1")];
        assert_eq!(present(&mut attendance, &listing, now, 0), ["a"]);
        assert_eq!(present(&mut attendance, &listing, now + short, 0), Vec::<String>::new());
        let by_another = [file("worker=a.json", 0, "2")];
        assert_eq!(present(&mut attendance, &by_another, now + short, 0), ["a"]);
    }

    #[tokio::test(start_paused = true)]
    async fn the_long_gone_are_swept_out_by_the_leader_one_for_each_listing() {
        let mut attendance = Attendance::default();
        attendance.will_enroll("me", 0, TTL);
        let mut listing: Vec<_> = (0..50).map(|n| file(&format!("worker={n}.json"), 0, "1")).collect();
        assert!(present(&mut attendance, &listing, Instant::now(), 3_000).is_empty());
        assert_eq!(attendance.take_forgotten("me"), None, "they may come back");
        for left in (0..50).rev() {
            assert!(present(&mut attendance, &listing, Instant::now(), 30_000).is_empty());
            assert_eq!(attendance.take_forgotten("another"), None, "that is the leader's");
            let swept = attendance.take_forgotten("me").expect("one of them");
            assert_eq!(attendance.take_forgotten("me"), None, "one");
            listing.retain(|file| file.location != swept);
            assert_eq!(listing.len(), left);
        }
        listing.push(file("worker=a.json", 0, "1"));
        attendance.present_members(&listing, Instant::now(), None);
        assert_eq!(attendance.take_forgotten("me"), None, "nobody knows how old it is");
    }
}
