//! Whether to stand when nobody leads: at once, in the order of the ids, or not at all.

use super::{Ask, Elector, Talk, Vacancy};
use crate::election::event::Happening;
use crate::election::{Now, Policy, Round};

impl Elector {
    pub(super) fn read_vacancy(&mut self, now: Now, talk: &mut Talk) {
        let former = self.seen.take().map(|seen| seen.holder);
        let vacancy = self.vacancy.get_or_insert(Vacancy { since: now.at, former: None, stand_at: None });
        if former.is_some() {
            vacancy.former = former;
        }
        let epoch = self.shown.1;
        self.show(None, epoch, now.at);
        if talk.round == Round::Beat && self.beats > 0 {
            self.attend(talk, now.at);
        }
        if self.abstains(now.at) || talk.has_stood {
            return;
        }
        if !self.stands_by_list() {
            self.stand(talk);
        } else if talk.listed.is_some() {
            self.stand_in_turn(now, talk);
        } else {
            talk.queue.retain(|ask| *ask != Ask::Roster);
            talk.queue.push_front(Ask::Roster);
        }
    }

    pub(super) fn read_roster(&mut self, names: Vec<String>, now: Now, talk: &mut Talk) {
        let before = self.roster.live(now.at);
        let turnover = self.roster.hear(&names, now.at, self.roster_timeout());
        self.pulse.members_changed(turnover);
        let workers = self.roster.live(now.at);
        if workers != before {
            self.pulse.tell(Happening::WorkersUpdated { workers });
        }
        talk.listed = Some(names);
        self.stand_in_turn(now, talk);
        self.attend_by_list(now, talk);
    }

    /// Stands if the list says that it is our turn.
    fn stand_in_turn(&mut self, now: Now, talk: &mut Talk) {
        let patience = self.settings.heartbeat_interval + self.settings.heartbeat_jitter;
        let yields = self.yields();
        let names = talk.listed.as_deref().unwrap_or_default();
        let Some(vacancy) = &mut self.vacancy else { return };
        if talk.has_stood || self.term.is_some() {
            return;
        }
        if yields {
            // The foreign members elect one of themselves; the next beat reads whom.
            vacancy.stand_at = Some(now.at + self.settings.heartbeat_interval);
            return;
        }
        let rank = self.settings.policy.rank(&self.me, names, vacancy.former.as_deref());
        // Each that should stand before us has a heartbeat to do so; then it is as good as dead.
        let turn = vacancy.since + patience.saturating_mul(rank.min(1_000));
        vacancy.stand_at = Some(turn);
        if self.stands_by_list() && now.at >= turn && !self.abstains(now.at) {
            self.stand(talk);
        }
    }

    /// Whether it takes a list to know whose turn it is.
    pub(super) fn stands_by_list(&self) -> bool {
        self.vacancy.is_some() && (self.settings.policy == Policy::LowestId || self.is_shared())
    }

    pub(super) fn stand(&mut self, talk: &mut Talk) {
        talk.has_stood = true;
        self.pulse.stood();
        talk.queue.push_front(Ask::Elect { floor: self.floor() });
    }
}
