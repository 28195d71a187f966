//! Many electors at one desk that fails, loses answers and forgets; some of them asleep for too long.

use proptest::prelude::*;

use super::*;

#[derive(Debug, Clone)]
enum Step {
    /// So many milliseconds pass, in which everybody who is awake does what is due.
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
    /// Of each epoch, who held it.
    holders: BTreeMap<u64, String>,
}

impl World {
    fn new(policy: Policy) -> Self {
        let bench = TestBench::new();
        let electors = ["a", "b", "c", "d"].map(|me| bench.elector(me, policy)).into();
        World { bench, electors, asleep: [false; ELECTORS], holders: BTreeMap::new() }
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
            // A round that ends as soon as it began must not come at once again.
            self.bench.now = self.bench.now + Duration::from_millis(1);
        }
        self.bench.now = end.max(self.bench.now);
    }

    /// Who believes to lead at this moment: by its own clock, which also one that slept looks at.
    fn check(&mut self) {
        let now = self.bench.now;
        let believers = self.electors.iter().filter_map(|elector| {
            let held = elector.term().filter(|held| now < held.certain_until)?;
            Some((elector.me().to_owned(), held.epoch.0))
        });
        let believers: Vec<_> = believers.collect();
        assert!(believers.len() <= 1, "two lead: {believers:?}");
        for (name, epoch) in believers {
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
                // Between terms: who leads at that moment cannot know that another may.
                if self.bench.present().is_none() {
                    // Where somebody does not know the last, numbers are repeated for a while.
                    if self.electors.iter().any(|elector| elector.epoch() != self.bench.highest) {
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
    fn at_most_one_leads_whatever_fails(steps in prop::collection::vec(step(), 1..120), lowest in any::<bool>()) {
        let mut world = World::new(if lowest { Policy::LowestId } else { Policy::FirstCome });
        for step in steps {
            world.take(step);
        }
    }

    #[test]
    fn once_all_is_well_somebody_leads(steps in prop::collection::vec(step(), 1..60), lowest in any::<bool>()) {
        let mut world = World::new(if lowest { Policy::LowestId } else { Policy::FirstCome });
        for step in steps {
            world.take(step);
        }
        (world.bench.down, world.bench.mute, world.asleep) = (false, false, [false; ELECTORS]);
        world.pass(90_000);
        let epoch = world.electors.iter().find_map(|elector| elector.term()).map(|held| held.epoch);
        let known = world.electors.iter().map(Elector::epoch).max();
        prop_assert!(epoch.is_some() && epoch == known, "{epoch:?} leads, {known:?} is known");
    }
}
