//! Whether to stand if there is no leader: at once, in the order of the ids, or not at all.

use super::{Ask, Elector, Exchange, Vacancy};
use crate::election::event::ElectionEvent;
use crate::election::{Now, Policy, Round};

impl Elector {
    pub(super) fn read_vacancy(&mut self, now: Now, exchange: &mut Exchange) {
        let former = self.seen.take().map(|seen| seen.holder);
        let vacancy = self.vacancy.get_or_insert(Vacancy { since: now.at, former: None, stand_at: None });
        if former.is_some() {
            vacancy.former = former;
        }
        let epoch = self.shown.1;
        self.publish_leader(None, epoch, now.at);
        if exchange.round == Round::Heartbeat && self.heartbeats > 0 {
            self.attend(exchange, now.at);
        }
        if self.abstains(now.at) || exchange.has_stood {
            return;
        }
        if !self.stands_by_list() {
            self.queue_elect(exchange);
        } else if exchange.listed.is_some() {
            self.queue_elect_in_turn(now, exchange);
        } else {
            exchange.queue.retain(|ask| *ask != Ask::Roster);
            exchange.queue.push_front(Ask::Roster);
        }
    }

    pub(super) fn read_roster(&mut self, names: Vec<String>, now: Now, exchange: &mut Exchange) {
        let before = self.roster.live(now.at);
        let turnover = self.roster.update(&names, now.at, self.roster_timeout());
        self.stats.members_changed(turnover);
        let workers = self.roster.live(now.at);
        if workers != before {
            self.stats.push_event(ElectionEvent::WorkersUpdated { workers });
        }
        exchange.listed = Some(names);
        self.queue_elect_in_turn(now, exchange);
        self.attend_by_list(now, exchange);
    }

    /// Stands if it is our turn by the list.
    fn queue_elect_in_turn(&mut self, now: Now, exchange: &mut Exchange) {
        let patience = self.settings.heartbeat_interval + self.settings.heartbeat_jitter;
        let yields = self.yields();
        let names = exchange.listed.as_deref().unwrap_or_default();
        let Some(vacancy) = &mut self.vacancy else { return };
        if exchange.has_stood || self.term.is_some() {
            return;
        }
        if yields {
            // The foreign members elect one of themselves; the next heartbeat reads the result.
            vacancy.stand_at = Some(now.at + self.settings.heartbeat_interval);
            return;
        }
        let rank = self.settings.policy.rank(&self.me, names, vacancy.former.as_deref());
        // Each member before us has one heartbeat to stand; after that it counts as dead.
        let turn = vacancy.since + patience.saturating_mul(rank.min(1_000));
        vacancy.stand_at = Some(turn);
        if self.stands_by_list() && now.at >= turn && !self.abstains(now.at) {
            self.queue_elect(exchange);
        }
    }

    /// Returns whether the list is needed to know whose turn it is.
    pub(super) fn stands_by_list(&self) -> bool {
        self.vacancy.is_some() && (self.settings.policy == Policy::LowestId || self.is_shared())
    }

    pub(super) fn queue_elect(&mut self, exchange: &mut Exchange) {
        exchange.has_stood = true;
        self.stats.record_candidacy();
        exchange.queue.push_front(Ask::Elect { floor: self.floor() });
    }
}
