//! Schedules and their ticks.

use async_trait::async_trait;
use convoke_core::election::Fence;
use convoke_core::jobs::schedule::Schedule;
use convoke_core::limits::PAGE_BYTES_MAX;
use convoke_core::ports::store::{DueSchedules, ScheduleStore, Tick, Ticked};
use convoke_core::{ByteBudget, Result, ScheduleName};
use jiff::Timestamp;

use super::MemoryStore;
use super::state::State;

#[async_trait]
impl ScheduleStore for MemoryStore {
    async fn put_schedule(&self, schedule: Schedule) -> Result<bool> {
        Ok(self.state().schedules.insert(schedule.name.clone(), schedule).is_none())
    }

    async fn replace_schedule(&self, known: &Schedule, schedule: Schedule) -> Result<bool> {
        let mut state = self.state();
        let stored = state.schedules.get_mut(&known.name).filter(|stored| *stored == known);
        Ok(stored.map(|stored| *stored = schedule).is_some())
    }

    async fn schedule(&self, name: &ScheduleName) -> Result<Option<Schedule>> {
        Ok(self.state().schedules.get(name).cloned())
    }

    async fn schedules(&self) -> Result<Vec<Schedule>> {
        Ok(self.state().schedules.values().cloned().collect())
    }

    async fn remove_schedule(&self, name: &ScheduleName) -> Result<bool> {
        Ok(self.state().schedules.remove(name).is_some())
    }

    async fn due_schedules(&self, now: Timestamp, limit: usize) -> Result<DueSchedules> {
        let state = self.state();
        let waiting = state.schedules.values().filter(|schedule| !schedule.paused);
        let mut waiting: Vec<_> = waiting.filter_map(|schedule| Some((schedule.next_run_at?, schedule))).collect();
        waiting.sort_by_key(|(at, _)| *at);
        let mut budget = ByteBudget::new(PAGE_BYTES_MAX);
        let due = waiting.iter().take_while(|(at, _)| *at <= now).take(limit);
        let due = due.take_while(|(_, schedule)| budget.admits(schedule.template.args_bytes())).count();
        Ok(DueSchedules {
            due: waiting[..due].iter().map(|(_, schedule)| (*schedule).clone()).collect(),
            next_at: waiting.get(due).map(|(at, _)| *at),
        })
    }

    async fn tick(&self, fence: Fence, ticks: Vec<Tick>) -> Result<Vec<Ticked>> {
        let mut state = self.fenced(fence, "tick")?;
        state.check_queues(ticks.iter().flat_map(|tick| &tick.jobs))?;
        Ok(ticks.into_iter().map(|tick| state.tick(tick)).collect())
    }
}

impl State {
    fn tick(&mut self, tick: Tick) -> Ticked {
        let still_there = self
            .schedules
            .get(&tick.schedule)
            .is_some_and(|schedule| !schedule.paused && schedule.next_run_at == Some(tick.expected));
        if !still_there {
            return Ticked::default();
        }
        let (mut made, mut last_run_at) = (Vec::new(), None);
        for job in tick.jobs {
            let live = self.indexes.live_of_schedule.get(&tick.schedule).is_some_and(|live| !live.is_empty());
            if (tick.skip_overlap && live) || self.there_already(&job).is_some() {
                continue;
            }
            made.push(job.id);
            last_run_at = last_run_at.max(job.run_at);
            self.store(job);
        }
        if let Some(schedule) = self.schedules.get_mut(&tick.schedule) {
            schedule.next_run_at = tick.next_run_at;
            schedule.last_run_at = last_run_at.or(schedule.last_run_at);
        }
        Ticked { made, moved: true }
    }
}
