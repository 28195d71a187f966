//! Many electors with one backend that fails, loses replies and loses data; some electors are paused for too long.

use proptest::prelude::*;

use super::*;
use crate::election::Conduct;

/// The kind of all electors of a world.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Members(Policy),
    Coordinators,
    Locks,
}

fn kind() -> impl Strategy<Value = Kind> {
    let members = [Policy::FirstCome, Policy::LowestId].map(Kind::Members);
    prop::sample::select(vec![members[0], members[1], Kind::Coordinators, Kind::Locks])
}

#[derive(Debug, Clone)]
enum Step {
    /// So many milliseconds pass, in which every elector that is not paused runs its due rounds.
    Pass(u64),
    Sleep(usize),
    Wake(usize),
    Down(bool),
    Mute(bool),
    Resign(usize),
    Forget,
}

const ELECTORS: usize = 4;

fn step() -> impl Strategy<Value = Step> {
    let who = 0..ELECTORS;
    prop_oneof![
        8 => (1_u64..4_000).prop_map(Step::Pass),
        2 => who.clone().prop_map(Step::Sleep),
        2 => who.clone().prop_map(Step::Wake),
        1 => any::<bool>().prop_map(Step::Down),
        1 => any::<bool>().prop_map(Step::Mute),
        1 => who.prop_map(Step::Resign),
        1 => Just(Step::Forget),
    ]
}

struct World {
    bench: TestBench,
    electors: Vec<Elector>,
    asleep: [bool; ELECTORS],
    kind: Kind,
    /// Of each epoch, who held it.
    holders: BTreeMap<u64, String>,
}

impl World {
    fn new(kind: Kind) -> Self {
        let bench = TestBench::new();
        let interval = Settings::default().heartbeat_interval;
        let make = |me| match kind {
            Kind::Members(policy) => bench.elector(me, policy),
            Kind::Coordinators => bench.elector(me, Policy::FirstCome).with_conduct(Conduct::coordinator(interval)),
            Kind::Locks => bench.elector(me, Policy::FirstCome).with_conduct(Conduct::lock(interval / 2)),
        };
        let electors = ["a", "b", "c", "d"].map(make).into();
        World { bench, electors, asleep: [false; ELECTORS], kind, holders: BTreeMap::new() }
    }

    fn pass(&mut self, ms: u64) {
        let end = self.bench.now + Duration::from_millis(ms);
        loop {
            let awake = (0..ELECTORS).filter(|i| !self.asleep[*i]);
            let due = awake.map(|i| (self.electors[i].due(self.bench.now), i)).min_by_key(|((at, _), _)| *at);
            let Some(((at, round), i)) = due.filter(|((at, _), _)| *at <= end) else { break };
            self.bench.now = at.max(self.bench.now);
            self.bench.converse(&mut self.electors[i], round);
            self.check();
            // A round that ends at once must not be repeated at the same time.
            self.bench.now = self.bench.now + Duration::from_millis(1);
        }
        self.bench.now = end.max(self.bench.now);
    }

    /// Checks that at most one elector, paused or not, believes by its own clock that it leads.
    fn check(&mut self) {
        let now = self.bench.now;
        let believers = self.electors.iter().filter_map(|elector| {
            let held = elector.term().filter(|held| now < held.certain_until)?;
            Some((elector.me().to_owned(), held.epoch.0))
        });
        let believers: Vec<_> = believers.collect();
        assert!(believers.len() <= 1, "two lead: {believers:?}");
        for (name, epoch) in believers {
            if self.kind == Kind::Coordinators {
                assert_eq!(self.bench.sealed, Some(Epoch(epoch)), "it acts on a term that is not sealed");
            }
            // The terms of a lock are numbered by each holder for itself.
            if self.kind == Kind::Locks {
                continue;
            }
            let holder = self.holders.entry(epoch).or_insert_with(|| name.clone());
            assert_eq!(*holder, name, "two held epoch {epoch}");
        }
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Pass(ms) => self.pass(ms),
            Step::Sleep(i) => self.asleep[i] = true,
            Step::Wake(i) => self.asleep[i] = false,
            Step::Down(down) => self.bench.down = down,
            Step::Mute(mute) => self.bench.mute = mute,
            Step::Resign(i) => self.bench.step_down(&mut self.electors[i]),
            Step::Forget => {
                // Only between terms: a present leader could not know that another may lead.
                if self.bench.present().is_none() {
                    // Where somebody does not know the last, numbers are repeated for a while.
                    let is_sealed = self.kind == Kind::Coordinators;
                    if !is_sealed && self.electors.iter().any(|elector| elector.epoch() != self.bench.highest) {
                        self.holders.clear();
                    }
                    (self.bench.highest, self.bench.lease) = (Epoch(0), None);
                }
            }
        }
        self.check();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn at_most_one_leads_whatever_fails(steps in prop::collection::vec(step(), 1..120), kind in kind()) {
        let mut world = World::new(kind);
        for step in steps {
            world.take(step);
        }
    }

    #[test]
    fn once_all_is_well_somebody_leads(steps in prop::collection::vec(step(), 1..60), kind in kind()) {
        let mut world = World::new(kind);
        for step in steps {
            world.take(step);
        }
        (world.bench.down, world.bench.mute, world.asleep) = (false, false, [false; ELECTORS]);
        world.pass(90_000);
        let epoch = world.electors.iter().find_map(|elector| elector.term()).map(|held| held.epoch);
        let known = world.electors.iter().map(Elector::epoch).max();
        let is_highest = epoch == known || !matches!(kind, Kind::Members(_));
        prop_assert!(epoch.is_some() && is_highest, "{epoch:?} leads, {known:?} is known");
    }
}
