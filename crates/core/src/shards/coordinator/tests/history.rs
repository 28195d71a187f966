//! Random histories of coordinators and workers over a network that loses, delays, repeats and reorders.
//!
//! The checker is independent of the implementation. It sees the grants under each version, and the shards that the
//! applications work on. It must find no shard with two holders under one version (S1), no shard that two workers with
//! handoff work on while both count as alive (S2), and an owner of every shard once the network is healed (S3).

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::{ProptestConfig, prop, prop_assert, proptest};

use super::super::*;
use crate::ids::Epoch;
use crate::shards::worker::{Profile, Worker};
use crate::shards::{Shard, Version};
use crate::shards::{Strategy, wire};

const SHARDS: u32 = 12;
const WORKERS: usize = 5;
const STEP: Duration = Duration::from_millis(10);

/// SplitMix64.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % sides
    }
}

/// A worker's process, with a slow application.
struct Process {
    worker: Worker,
    /// When the application will have applied the last change, and the shards that it works on then.
    busy_until: Option<(Duration, Vec<Shard>)>,
    /// The shards that it works on.
    works_on: BTreeSet<Shard>,
    /// The shards that it worked on when its certainty ended: they may have another owner from then on.
    expired: BTreeSet<Shard>,
}

struct World {
    dice: Dice,
    now: Duration,
    is_healed: bool,
    /// A coordinator that does not wait for `released` after a revocation.
    is_broken: bool,
    /// A store that lists no worker.
    forgets: bool,
    settings: Settings,
    epoch: u64,
    coordinator: Option<(Coordinator, Duration)>,
    /// The rows of the store, if it is durable.
    store: Option<BTreeSet<ShardMember>>,
    /// A change that is being written, and when it will be stored.
    writing: Option<(Duration, RosterChange)>,
    processes: Vec<Option<Process>>,
    lives: u64,
    to_coordinator: Vec<(Duration, usize, Message)>,
    to_workers: Vec<(Duration, usize, Bytes)>,
    /// The worker that was granted a shard under a version.
    grants: BTreeMap<(Version, Shard), usize>,
    violations: Vec<String>,
}

fn worker_id(place: usize) -> WorkerId {
    WorkerId::new(format!("w{place}")).expect("a name")
}

fn peer(place: usize) -> Peer {
    Peer(Bytes::from(vec![place as u8]))
}

impl World {
    fn new(seed: u64, strategy: Strategy) -> World {
        let settings = Settings {
            heartbeat_timeout: Duration::from_millis(1_000),
            check_interval: Duration::from_millis(200),
            strategy,
            ..Settings::default()
        };
        World {
            dice: Dice(seed),
            now: Duration::ZERO,
            is_healed: false,
            is_broken: false,
            forgets: false,
            settings,
            epoch: 0,
            coordinator: None,
            store: None,
            writing: None,
            processes: (0..WORKERS).map(|_| None).collect(),
            lives: 0,
            to_coordinator: Vec::new(),
            to_workers: Vec::new(),
            grants: BTreeMap::new(),
            violations: Vec::new(),
        }
    }

    /// Returns a world with a durable store.
    fn listing(seed: u64, strategy: Strategy) -> World {
        World { store: Some(BTreeSet::new()), ..World::new(seed, strategy) }
    }

    /// Returns when copies of a message arrive.
    fn arrivals(&mut self) -> Vec<Duration> {
        if self.is_healed {
            return vec![self.now];
        }
        let copies = match self.dice.roll(20) {
            0 => 0,
            1 => 2,
            _ => 1,
        };
        (0..copies).map(|_| self.now + Duration::from_millis(self.dice.roll(150))).collect()
    }

    fn lead(&mut self) {
        self.epoch += 1;
        let start = match &self.store {
            Some(listed) => Start::Listed(listed.iter().cloned().collect()),
            None if self.epoch == 1 => Start::Fresh,
            None => Start::Takeover,
        };
        let coordinator = Coordinator::new(self.settings.clone(), start, Version::of_term(Epoch(self.epoch)));
        self.coordinator = Some((coordinator, self.now));
    }

    fn spawn(&mut self, place: usize) {
        self.lives += 1;
        let profile = Profile {
            service: ServiceName::new("s").expect("a name"),
            worker: worker_id(place),
            max_shards: SHARDS,
            handoff: true,
            heartbeat_interval: Some(Duration::from_millis(200)),
        };
        let worker = Worker::new(profile, self.lives << 32, self.now);
        let (works_on, expired) = (BTreeSet::new(), BTreeSet::new());
        self.processes[place] = Some(Process { worker, busy_until: None, works_on, expired });
    }

    fn disturb(&mut self) {
        let place = self.dice.roll(WORKERS as u64) as usize;
        match self.dice.roll(400) {
            0 => self.processes[place] = None,
            1 => self.processes[place].iter_mut().for_each(|process| process.worker.leave()),
            2 => self.crash(),
            3..20 if self.processes[place].is_none() => self.spawn(place),
            20..30 if self.coordinator.is_none() => self.lead(),
            _ => {}
        }
    }

    /// A change that is being written is stored, or never will be.
    fn crash(&mut self) {
        self.coordinator = None;
        if let Some((_, change)) = self.writing.take().filter(|_| self.dice.roll(2) == 0) {
            self.write(&change);
        }
    }

    fn write(&mut self, change: &RosterChange) {
        let store = self.store.get_or_insert_default();
        store.retain(|member| !change.remove.contains(member));
        if !self.forgets {
            store.extend(change.add.iter().cloned());
        }
    }

    fn run_store(&mut self, coordinator: &mut Coordinator, now: Duration) {
        if let Some((_, change)) = self.writing.take_if(|(at, _)| *at <= self.now) {
            self.write(&change);
            coordinator.roster_written(change, now);
        }
        if self.writing.is_none()
            && let Some(change) = coordinator.roster_change()
        {
            let takes = if self.is_healed { 0 } else { self.dice.roll(200) };
            self.writing = Some((self.now + Duration::from_millis(takes), change));
        }
    }

    fn step(&mut self) {
        self.now += STEP;
        if !self.is_healed {
            self.disturb();
        }
        self.run_workers();
        self.run_coordinator();
        self.deliver_to_workers();
        self.check();
    }

    fn run_workers(&mut self) {
        for place in 0..WORKERS {
            let Some(mut process) = self.processes[place].take() else { continue };
            let mut outgoing = Vec::new();
            process.worker.tick(self.now, &mut outgoing);
            if let Some((_, shards)) = process.busy_until.take_if(|(until, _)| *until <= self.now) {
                process.works_on = shards.into_iter().collect();
                process.worker.acknowledge(&mut outgoing);
            }
            if process.busy_until.is_none()
                && let Some(change) = process.worker.change(self.now)
            {
                // It begins at once, and takes time to stop.
                process.works_on.extend(&change.shards);
                let until = self.now + Duration::from_millis(self.dice.roll(400));
                process.busy_until = Some((until, change.shards));
            }
            for message in outgoing {
                for at in self.arrivals() {
                    self.to_coordinator.push((at, place, message.clone()));
                }
            }
            if !process.worker.is_gone() {
                self.processes[place] = Some(process);
            }
        }
    }

    fn run_coordinator(&mut self) {
        let (due, later) = std::mem::take(&mut self.to_coordinator).into_iter().partition(|(at, ..)| *at <= self.now);
        self.to_coordinator = later;
        let Some((mut coordinator, began)) = self.coordinator.take() else { return };
        let mut output = Output::default();
        let due: Vec<(Duration, usize, Message)> = due;
        for (_, place, message) in due {
            coordinator.on_message(&peer(place), message, self.now - began, &mut output);
        }
        self.run_store(&mut coordinator, self.now - began);
        coordinator.tick(self.now - began, &mut output);
        for (to, text) in output.sends {
            self.sent(to.0[0] as usize, &text);
            for at in self.arrivals() {
                self.to_workers.push((at, to.0[0] as usize, text.clone()));
            }
        }
        self.coordinator = Some((coordinator, began));
    }

    /// Checks a message of the coordinator.
    fn sent(&mut self, place: usize, text: &Bytes) {
        match wire::answer(std::slice::from_ref(text)).expect("it can be read") {
            CoordinatorMessage::Assignment(assignment) => {
                for shard in assignment.assigned_shards {
                    let holder = *self.grants.entry((assignment.version, shard)).or_insert(place);
                    if holder != place {
                        let version = assignment.version;
                        self.violations.push(format!("S1: {holder} and {place} have {shard} under {version}"));
                    }
                }
            }
            CoordinatorMessage::Revoke(revoke) if self.is_broken => {
                let (service_name, worker_id) = (ServiceName::new("s").expect("a name"), worker_id(place));
                let released = Released { service_name, worker_id, shards: revoke.shards, version: revoke.version };
                self.to_coordinator.push((self.now, place, Message::Released(released)));
            }
            _ => {}
        }
    }

    fn deliver_to_workers(&mut self) {
        let (due, later): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.to_workers).into_iter().partition(|(at, ..)| *at <= self.now);
        self.to_workers = later;
        for (_, place, text) in due {
            let mut outgoing = Vec::new();
            if let Some(process) = &mut self.processes[place] {
                let response = wire::answer(&[text]).expect("it can be read");
                process.worker.on_message(response, self.now, &mut outgoing);
            }
            for message in outgoing {
                for at in self.arrivals() {
                    self.to_coordinator.push((at, place, message.clone()));
                }
            }
        }
    }

    fn check(&mut self) {
        let mut holders: BTreeMap<Shard, usize> = BTreeMap::new();
        for (place, process) in self.processes.iter_mut().enumerate() {
            let Some(process) = process else { continue };
            if !process.worker.is_certain(self.now) {
                process.expired.clone_from(&process.works_on);
            }
            process.expired.retain(|shard| process.works_on.contains(shard));
            for shard in process.works_on.difference(&process.expired) {
                if let Some(other) = holders.insert(*shard, place) {
                    self.violations.push(format!("S2: {other} and {place} work on {shard} at {:?}", self.now));
                }
            }
        }
    }

    /// Ends all faults and waits.
    fn heal(&mut self) {
        self.is_healed = true;
        if self.coordinator.is_none() {
            self.lead();
        }
        if self.processes.iter().all(Option::is_none) {
            self.spawn(0);
        }
        for _ in 0..400 {
            self.step();
        }
        let mut owned: BTreeSet<Shard> = BTreeSet::new();
        for process in self.processes.iter().flatten() {
            owned.extend(process.worker.shards(self.now));
        }
        if owned.len() < SHARDS as usize && self.processes.iter().any(Option::is_some) {
            self.violations.push(format!("S3: only {owned:?} are owned"));
        }
    }

    fn live(mut self, steps: usize) -> Vec<String> {
        for _ in 0..steps {
            self.step();
        }
        self.heal();
        self.violations
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn no_history_gives_a_shard_two_holders(seed: u64, strategy in prop::sample::select(Strategy::ALL.to_vec())) {
        let violations = World::new(seed, strategy).live(1_500);
        prop_assert!(violations.is_empty(), "{violations:#?}");
    }

    #[test]
    fn nor_does_one_whose_coordinators_list_their_workers(
        seed: u64,
        strategy in prop::sample::select(Strategy::ALL.to_vec()),
    ) {
        let violations = World::listing(seed, strategy).live(1_500);
        prop_assert!(violations.is_empty(), "{violations:#?}");
    }
}

/// The roster of a store that loses rows must not be trusted: the checker detects the difference.
#[test]
fn a_list_that_lacks_workers_is_caught() {
    let caught = (0..40).any(|seed| {
        let mut world = World::listing(seed, Strategy::Contiguous);
        world.forgets = true;
        world.live(1_500).iter().any(|violation| violation.starts_with("S2"))
    });
    assert!(caught, "the checker would not see it");
}

#[test]
fn a_coordinator_that_does_not_wait_for_releases_is_caught() {
    let caught = (0..20).any(|seed| {
        let mut world = World::new(seed, Strategy::Contiguous);
        world.is_broken = true;
        world.live(1_500).iter().any(|violation| violation.starts_with("S2"))
    });
    assert!(caught, "the checker would not see it");
}
