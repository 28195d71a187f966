//! The records that a node keeps: its own and those of the others, merged and bounded.
//!
//! A record may arrive twice, late, or first without and later with its end. Merging is idempotent and does not depend
//! on the order.

use std::collections::{BTreeMap, VecDeque};

use jiff::Timestamp;

use super::{
    Bucket, DrainRecord, HandoffRecord, Rebalance, Record, RefusedWrite, Series, SlowRenewal, TermEnd, TermRecord,
};
use crate::ids::{Epoch, NodeId, ServiceName};

/// Terms that are kept.
pub const TERMS_MAX: usize = 256;
/// Slow renewals that are kept of one term.
pub const SLOW_MAX: usize = 32;
/// Refused writes that are kept.
pub const REFUSED_MAX: usize = 256;
/// Handoffs that are kept.
pub const HANDOFFS_MAX: usize = 1_000;
/// Drains that are kept.
pub const DRAINS_MAX: usize = 64;
/// Rebalances that are kept, of all services.
pub const REBALANCES_MAX: usize = 512;
/// Rebalances that are kept of one service.
pub const SERVICE_REBALANCES_MAX: usize = 64;
/// Ranges of shards that one rebalance lists.
pub const MOVES_MAX: usize = 2_048;
/// Ranges of shards that are kept, of all rebalances.
const MOVES_KEPT_MAX: usize = 50_000;

/// The recent past of a fleet, as one node knows it.
#[derive(Debug)]
pub struct History {
    since: Timestamp,
    terms: BTreeMap<Epoch, TermRecord>,
    refused: VecDeque<RefusedWrite>,
    handoffs: VecDeque<HandoffRecord>,
    drains: VecDeque<DrainRecord>,
    rebalances: VecDeque<Rebalance>,
    series: Series,
    /// The own part of the series, for nodes that start later.
    buckets: VecDeque<(NodeId, Bucket)>,
}

impl History {
    /// Returns an empty history of a node that starts now.
    pub fn new(now: Timestamp) -> Self {
        History {
            since: now,
            terms: BTreeMap::new(),
            refused: VecDeque::new(),
            handoffs: VecDeque::new(),
            drains: VecDeque::new(),
            rebalances: VecDeque::new(),
            series: Series::default(),
            buckets: VecDeque::new(),
        }
    }

    /// Returns since when this node knows what happened.
    pub fn since(&self) -> Timestamp {
        self.since
    }

    /// Records that another node has sent all that it knows, since then.
    pub fn knows_since(&mut self, since: Timestamp) {
        self.since = self.since.min(since);
    }

    /// Adds a record, or merges it with what is known.
    pub fn merge(&mut self, record: Record, now: Timestamp) {
        match record {
            Record::Term(term) => self.merge_term(term),
            Record::Refused(refused) => self.merge_refused(refused),
            Record::Handoff(handoff) => self.merge_handoff(handoff),
            Record::Drain(drain) => self.merge_drain(drain),
            Record::Rebalance(rebalance) => self.merge_rebalance(rebalance),
            Record::Bucket { node, bucket } => self.series.add(&node, &bucket, now),
        }
    }

    /// Adds what this node counted, and keeps it for nodes that start later.
    pub fn count(&mut self, node: &NodeId, bucket: Bucket, now: Timestamp) {
        self.series.add(node, &bucket, now);
        self.buckets.push_back((node.clone(), bucket));
        if self.buckets.len() > super::BUCKETS_MAX {
            self.buckets.pop_front();
        }
    }

    /// Returns the time series.
    pub fn series(&self) -> &Series {
        &self.series
    }

    /// Returns all records, or those that `node` made, for a node that starts.
    pub fn records(&self, node: Option<&NodeId>) -> Vec<Record> {
        let records = self
            .terms
            .values()
            .cloned()
            .map(Record::Term)
            .chain(self.refused.iter().cloned().map(Record::Refused))
            .chain(self.handoffs.iter().cloned().map(Record::Handoff))
            .chain(self.drains.iter().cloned().map(Record::Drain))
            .chain(self.rebalances.iter().cloned().map(Record::Rebalance));
        let buckets = self.buckets.iter().cloned().map(|(node, bucket)| Record::Bucket { node, bucket });
        records.filter(|record| node.is_none_or(|node| record.is_of(node))).chain(buckets).collect()
    }

    /// Returns the terms, the newest first. A term whose leader has not reported its end ended when its successor began.
    /// `vacant_since`: the last term that was read from the lease, and when that expired without a successor.
    pub fn terms(&self, vacant_since: Option<(Epoch, Timestamp)>) -> Vec<TermRecord> {
        let mut successor: Option<Timestamp> = None;
        let mut terms = Vec::with_capacity(self.terms.len());
        for term in self.terms.values().rev() {
            let mut term = term.clone();
            let expired = vacant_since.filter(|(epoch, _)| *epoch == term.epoch).map(|(_, at)| at);
            if let Some(over) = successor.or(expired)
                && term.ended_at.is_none_or(|ended| ended > over)
            {
                // The clocks of two nodes differ: a term does not end before it began.
                term.ended_at = Some(over.max(term.began_at));
                term.ended_by.get_or_insert(TermEnd::Expired);
            }
            successor = Some(successor.map_or(term.began_at, |before| before.min(term.began_at)));
            terms.push(term);
        }
        terms
    }

    /// Returns the present record of a term.
    pub fn term(&self, epoch: Epoch) -> Option<&TermRecord> {
        self.terms.get(&epoch)
    }

    /// Returns the refused writes, the newest first.
    pub fn refused(&self) -> impl Iterator<Item = &RefusedWrite> {
        self.refused.iter().rev()
    }

    /// Returns the handoffs, the newest first.
    pub fn handoffs(&self) -> impl Iterator<Item = &HandoffRecord> {
        self.handoffs.iter().rev()
    }

    /// Returns the drains, the newest first.
    pub fn drains(&self) -> impl Iterator<Item = &DrainRecord> {
        self.drains.iter().rev()
    }

    /// Returns the rebalances of a service, the newest first.
    pub fn rebalances(&self, service: &ServiceName) -> impl Iterator<Item = &Rebalance> {
        self.rebalances.iter().rev().filter(move |rebalance| rebalance.service == *service)
    }

    fn merge_term(&mut self, new: TermRecord) {
        match self.terms.get_mut(&new.epoch) {
            None => {
                self.terms.insert(new.epoch, new);
                if self.terms.len() > TERMS_MAX {
                    self.terms.pop_first();
                }
            }
            Some(known) => {
                if new.reported && !known.reported {
                    (known.node, known.began_at, known.reported) = (new.node, new.began_at, true);
                }
                if new.ended_at.is_some() {
                    (known.ended_at, known.ended_by) = (new.ended_at, new.ended_by);
                }
                for slow in new.slow_renewals {
                    let known = &mut known.slow_renewals;
                    if !known.iter().any(|it| it.at == slow.at) {
                        known.push(slow);
                    }
                }
            }
        }
        for term in self.terms.values_mut() {
            bound_slow(&mut term.slow_renewals);
        }
    }

    fn merge_refused(&mut self, new: RefusedWrite) {
        let is_same = |it: &&mut RefusedWrite| {
            (it.at, &it.node, &it.what, &it.number, it.job_id)
                == (new.at, &new.node, &new.what, &new.number, new.job_id)
        };
        match self.refused.iter_mut().find(is_same) {
            Some(known) => known.against = new.against.or_else(|| known.against.take()),
            None => insert(&mut self.refused, new, |it| it.at, REFUSED_MAX),
        }
    }

    /// The former owner and the new one both report a handoff; the former knows the case.
    fn merge_handoff(&mut self, new: HandoffRecord) {
        let is_same = |it: &&mut HandoffRecord| {
            let names = |it: &HandoffRecord| (it.execution_id, it.from_node.clone(), it.reason);
            let is_other_owner = it.to_node.is_some() && new.to_node.is_some() && it.to_node != new.to_node;
            names(it) == names(&new) && !is_other_owner
        };
        match self.handoffs.iter_mut().find(is_same) {
            Some(known) => {
                known.to_node = new.to_node.or_else(|| known.to_node.take());
                known.case = new.case.or(known.case);
                known.tries = new.tries.or(known.tries);
                known.duration = new.duration.or(known.duration);
            }
            None => insert(&mut self.handoffs, new, |it| it.at, HANDOFFS_MAX),
        }
    }

    fn merge_drain(&mut self, new: DrainRecord) {
        let is_same = |it: &&mut DrainRecord| (&it.node, it.began_at) == (&new.node, new.began_at);
        match self.drains.iter_mut().find(is_same) {
            Some(known) if known.at <= new.at => *known = new,
            Some(_) => {}
            None => insert(&mut self.drains, new, |it| it.began_at, DRAINS_MAX),
        }
    }

    fn merge_rebalance(&mut self, mut new: Rebalance) {
        let is_same = |it: &Rebalance| (&it.service, it.version) == (&new.service, new.version);
        if self.rebalances.iter().any(is_same) {
            return;
        }
        if new.moves.len() > MOVES_MAX {
            (new.moves, new.cut) = (Vec::new(), true);
        }
        let service = new.service.clone();
        insert(&mut self.rebalances, new, |it| it.at, REBALANCES_MAX);
        if self.rebalances(&service).count() > SERVICE_REBALANCES_MAX
            && let Some(oldest) = self.rebalances.iter().position(|it| it.service == service)
        {
            self.rebalances.remove(oldest);
        }
        let mut kept: usize = self.rebalances.iter().map(|it| it.moves.len()).sum();
        while kept > MOVES_KEPT_MAX
            && let Some(oldest) = self.rebalances.pop_front()
        {
            kept -= oldest.moves.len();
        }
    }
}

fn bound_slow(slow: &mut Vec<SlowRenewal>) {
    if !slow.is_sorted_by_key(|it| it.at) {
        slow.sort_by_key(|it| it.at);
    }
    let beyond = slow.len().saturating_sub(SLOW_MAX);
    slow.drain(..beyond);
}

/// Inserts in the order of time, and drops the oldest beyond `max`.
fn insert<T>(list: &mut VecDeque<T>, new: T, at: impl Fn(&T) -> Timestamp, max: usize) {
    let place = list.partition_point(|it| at(it) <= at(&new));
    list.insert(place, new);
    if list.len() > max {
        list.pop_front();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use uuid::Uuid;

    use super::*;
    use crate::history::{FenceKind, ShardMove};
    use crate::ids::{ExecutionId, JobId};
    use crate::jobs::handoff::AckCase;
    use crate::jobs::wire::HandoffReason;
    use crate::shards::Version;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("a time")
    }

    fn node(name: &str) -> NodeId {
        NodeId::new(name).expect("a name")
    }

    fn history() -> History {
        History::new(at(0))
    }

    fn term(epoch: u64, name: &str, began: i64) -> TermRecord {
        TermRecord {
            epoch: Epoch(epoch),
            node: node(name),
            began_at: at(began),
            ended_at: None,
            ended_by: None,
            slow_renewals: Vec::new(),
            reported: true,
        }
    }

    fn handoff(number: u128, second: i64) -> HandoffRecord {
        HandoffRecord {
            at: at(second),
            job_id: JobId(Uuid::from_u128(number)),
            execution_id: ExecutionId(Uuid::from_u128(number)),
            from_node: node("a"),
            to_node: None,
            reason: HandoffReason::Shutdown,
            case: None,
            tries: None,
            duration: None,
        }
    }

    #[test]
    fn a_term_without_a_reported_end_ended_when_its_successor_began() {
        let mut history = history();
        history.merge(Record::Term(term(1, "a", 10)), at(10));
        assert_eq!(history.terms(None)[0].ended_at, None);
        history.merge(Record::Term(term(3, "b", 50)), at(50));
        let terms = history.terms(None);
        assert_eq!((terms[0].epoch, terms[0].ended_at), (Epoch(3), None));
        assert_eq!((terms[1].ended_at, terms[1].ended_by), (Some(at(50)), Some(TermEnd::Expired)));
        // The former leader was paused: it reports the end later, with its own reason.
        let ended = TermRecord { ended_at: Some(at(90)), ended_by: Some(TermEnd::Fenced), ..term(1, "a", 10) };
        history.merge(Record::Term(ended), at(90));
        let terms = history.terms(None);
        assert_eq!((terms[1].ended_at, terms[1].ended_by), (Some(at(50)), Some(TermEnd::Fenced)));
    }

    #[test]
    fn a_term_whose_lease_has_expired_is_over_without_a_successor() {
        let mut history = history();
        history.merge(Record::Term(term(1, "a", 10)), at(10));
        let terms = history.terms(Some((Epoch(1), at(40))));
        assert_eq!((terms[0].ended_at, terms[0].ended_by), (Some(at(40)), Some(TermEnd::Expired)));
        assert_eq!(history.terms(Some((Epoch(9), at(40))))[0].ended_at, None, "that is another term");
    }

    #[test]
    fn a_leader_knows_its_term_better_than_those_who_read_the_lease() {
        let mut history = history();
        history.merge(Record::Term(TermRecord { reported: false, ..term(1, "a", 12) }), at(12));
        history.merge(Record::Term(term(1, "a", 10)), at(12));
        history.merge(Record::Term(TermRecord { reported: false, ..term(1, "a", 14) }), at(14));
        let terms = history.terms(None);
        assert_eq!((terms.len(), terms[0].began_at, terms[0].reported), (1, at(10), true));
    }

    #[test]
    fn terms_and_their_slow_renewals_are_bounded() {
        let mut history = history();
        for epoch in 1..=TERMS_MAX as u64 + 5 {
            history.merge(Record::Term(term(epoch, "a", epoch as i64)), at(0));
        }
        let terms = history.terms(None);
        assert_eq!((terms.len(), terms[0].epoch), (TERMS_MAX, Epoch(TERMS_MAX as u64 + 5)));
        let slow =
            |second| SlowRenewal { at: at(second), duration: Duration::from_secs(9), expected: Duration::from_secs(3) };
        let last = TERMS_MAX as u64 + 5;
        let slow_term = TermRecord { slow_renewals: (0..100).map(slow).collect(), ..term(last, "a", 0) };
        for _ in 0..2 {
            history.merge(Record::Term(slow_term.clone()), at(0));
        }
        let kept = &history.terms(None)[0].slow_renewals;
        assert_eq!((kept.len(), kept.last().map(|it| it.at)), (SLOW_MAX, Some(at(99))));
    }

    #[test]
    fn both_reports_of_a_handoff_become_one() {
        let taken = HandoffRecord { to_node: Some(node("b")), ..handoff(1, 20) };
        let acknowledged = HandoffRecord {
            to_node: Some(node("b")),
            case: Some(AckCase::Acknowledged),
            tries: Some(1),
            duration: Some(Duration::from_millis(30)),
            ..handoff(1, 21)
        };
        for order in [[taken.clone(), acknowledged.clone()], [acknowledged, taken]] {
            let mut history = history();
            order.into_iter().for_each(|record| history.merge(Record::Handoff(record), at(30)));
            let handoffs: Vec<_> = history.handoffs().collect();
            assert_eq!(handoffs.len(), 1);
            assert_eq!(handoffs[0].case, Some(AckCase::Acknowledged));
            assert_eq!(handoffs[0].to_node, Some(node("b")));
        }
        let mut history = history();
        for (number, second) in (0..HANDOFFS_MAX as u128 + 10).zip(0..) {
            history.merge(Record::Handoff(handoff(number, second)), at(0));
        }
        assert_eq!(history.handoffs().count(), HANDOFFS_MAX);
        assert_eq!(history.handoffs().last().map(|it| it.at), Some(at(10)), "the oldest are dropped");
    }

    #[test]
    fn a_refused_write_learns_later_what_it_was_compared_with() {
        let refused = RefusedWrite {
            at: at(5),
            node: node("a"),
            fence: FenceKind::Leader,
            what: "dispatch".into(),
            by: "a".into(),
            number: "7".into(),
            against: None,
            job_id: None,
        };
        let mut history = history();
        history.merge(Record::Refused(refused.clone()), at(5));
        history.merge(Record::Refused(RefusedWrite { against: Some("8".into()), ..refused.clone() }), at(6));
        history.merge(Record::Refused(refused), at(7));
        let known: Vec<_> = history.refused().collect();
        assert_eq!((known.len(), known[0].against.as_deref()), (1, Some("8")));
    }

    #[test]
    fn the_last_state_of_a_drain_counts() {
        let drain = |second, open| DrainRecord {
            node: node("a"),
            began_at: at(1),
            at: at(second),
            runs: 9,
            open,
            orphans: 0,
            ended_at: None,
        };
        let mut history = history();
        for record in [drain(2, 5), drain(4, 0), drain(3, 2)] {
            history.merge(Record::Drain(record), at(5));
        }
        let drains: Vec<_> = history.drains().collect();
        assert_eq!((drains.len(), drains[0].open), (1, 0));
    }

    fn rebalance(service: &str, version: u64, moves: usize) -> Rebalance {
        let moves = (0..moves as u32).map(|shard| ShardMove { first: shard, last: shard, from: None, to: None });
        Rebalance {
            service: ServiceName::new(service).expect("a name"),
            version: Version(version),
            at: at(version as i64),
            node: node("a"),
            shard_count: 10,
            causes: Vec::new(),
            moved: 1,
            moves: moves.collect(),
            cut: false,
        }
    }

    #[test]
    fn rebalances_are_bounded_in_count_and_in_ranges() {
        let mut history = history();
        let name = |service: &str| ServiceName::new(service).expect("a name");
        history.merge(Record::Rebalance(rebalance("quiet", 1, 1)), at(0));
        for version in 1..=200 {
            history.merge(Record::Rebalance(rebalance("busy", version, 1)), at(0));
            history.merge(Record::Rebalance(rebalance("busy", version, 1)), at(0));
        }
        assert_eq!(history.rebalances(&name("busy")).count(), SERVICE_REBALANCES_MAX);
        assert_eq!(history.rebalances(&name("quiet")).count(), 1, "a busy service displaces no other");
        history.merge(Record::Rebalance(rebalance("large", 1, MOVES_MAX + 1)), at(0));
        let large = history.rebalances(&name("large")).next().expect("kept");
        assert!(large.cut && large.moves.is_empty());
        for service in 0..40 {
            history.merge(Record::Rebalance(rebalance(&format!("s{service}"), 1_000, MOVES_MAX)), at(0));
        }
        let kept: usize = history.rebalances.iter().map(|it| it.moves.len()).sum();
        assert!(kept <= MOVES_KEPT_MAX, "{kept}");
    }

    #[test]
    fn a_node_that_starts_receives_everything_or_the_part_of_one_node() {
        let mut history = history();
        history.merge(Record::Term(term(1, "a", 10)), at(10));
        history.merge(Record::Term(term(2, "b", 20)), at(20));
        history.merge(Record::Handoff(HandoffRecord { to_node: Some(node("b")), ..handoff(1, 20) }), at(20));
        assert_eq!(history.records(None).len(), 3);
        assert_eq!(history.records(Some(&node("a"))).len(), 2);
        assert_eq!(history.records(Some(&node("c"))).len(), 0);
        let mut later = History::new(at(100));
        history.records(None).into_iter().for_each(|record| later.merge(record, at(100)));
        later.knows_since(history.since());
        assert_eq!(later.terms(None), history.terms(None));
        assert_eq!(later.since(), at(0));
    }
}
