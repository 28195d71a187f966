//! Faults, and the plan of a seed: which of them happen when, to whom.

use convoke_core::ports::Chance;
use serde::Serialize;

use crate::network::Service;

/// The nodes of a world.
pub const NODES: usize = 3;
/// The workers of a world: the first ones use the gateway, the last one the bus.
pub const WORKERS: usize = 3;
/// The worker that uses the bus.
pub const BUS_WORKER: usize = WORKERS - 1;
/// How long faults may happen. Then the world is healed.
pub const STORY_MS: u64 = 8_000;

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident = $text:literal),* $(,)?) => {
        /// A kind of fault.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
        pub enum Kind { $($(#[$doc])* #[serde(rename = $text)] $name),* }

        impl Kind {
            pub const ALL: &[Kind] = &[$(Kind::$name),*];

            /// Returns the name of the kind, as in `--faults`.
            pub const fn name(self) -> &'static str {
                match self { $(Kind::$name => $text),* }
            }
        }
    };
}

kinds! {
    /// A process does not reach a service: its requests, or only the replies, are lost.
    Cut = "cut",
    /// Some writes of a process are applied, and reported as unknown.
    Unknown = "unknown",
    /// Writes of a process arrive seconds later, after it has given up.
    Late = "late",
    /// Everybody's calls of a service are slow.
    Slow = "slow",
    /// Messages on topics are lost.
    Lose = "lose",
    /// Messages on topics and entries of queues come twice.
    Repeat = "repeat",
    /// Messages overtake each other.
    Reorder = "reorder",
    /// The bus loses all that it had.
    Forget = "forget",
    /// The bus confirms entries and loses them.
    ForgetSuffix = "forget-suffix",
    /// The leases lose all that they had.
    ForgetLeases = "forget-leases",
    /// A node is killed, and started again.
    Kill = "kill",
    /// A node hands over and stops, and is started again.
    Drain = "drain",
    /// A worker is killed, and another is started.
    KillWorker = "kill-worker",
    /// A node is paused for longer than its lease.
    Pause = "pause",
    /// A worker is paused for longer than it may be silent.
    PauseWorker = "pause-worker",
    /// The wall clock of a node jumps ahead or back.
    Skew = "skew",
    /// The store takes no writes.
    Full = "full",
    /// The store restarts in the middle of commits.
    RestartStore = "restart-store",
    /// Calls of workers at a node fail, before or after they had their effect, or are sent twice.
    Link = "link",
}

impl std::str::FromStr for Kind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Kind::ALL.iter().copied().find(|kind| kind.name() == text);
        let names: Vec<&str> = Kind::ALL.iter().map(|kind| kind.name()).collect();
        found.ok_or_else(|| format!("expected some of {}, got {text:?}", names.join(", ")))
    }
}

/// One fault of a plan.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Fault {
    pub kind: Kind,
    /// When it begins, in virtual milliseconds.
    pub at_ms: u64,
    /// How long it lasts.
    pub for_ms: u64,
    /// The node or worker that it affects.
    pub target: usize,
    pub service: Service,
    /// What varies within the kind, from 0 to below 1.
    pub variant: f64,
}

impl Fault {
    fn draw(kind: Kind, chance: &dyn Chance) -> Fault {
        let pick = |count: usize| ((chance.fraction() * count as f64) as usize).min(count - 1);
        let services: &[Service] = match kind {
            Kind::Late => &[Service::Store, Service::Store, Service::Store, Service::Leases],
            Kind::Unknown => &[Service::Store, Service::Store, Service::Bus, Service::Leases],
            _ => &Service::ALL,
        };
        let service = services[pick(services.len())];
        let targets = if matches!(kind, Kind::KillWorker | Kind::PauseWorker) { WORKERS } else { NODES };
        let for_ms = match kind {
            Kind::RestartStore => 100 + pick(400) as u64,
            Kind::Forget | Kind::ForgetLeases => 0,
            Kind::Full | Kind::ForgetSuffix => 200 + pick(1_500) as u64,
            Kind::Pause | Kind::PauseWorker | Kind::Late => 2_000 + pick(2_500) as u64,
            _ => 300 + pick(3_500) as u64,
        };
        let at_ms = 600 + pick((STORY_MS - 1_600) as usize) as u64;
        Fault { kind, at_ms, for_ms, target: pick(targets), service, variant: chance.fraction() }
    }

    /// Returns the fault in one line.
    pub fn line(&self) -> String {
        let whom = match self.kind {
            Kind::KillWorker | Kind::PauseWorker => format!(" w{}", self.target + 1),
            Kind::Slow => format!(" {}", self.service.name()),
            Kind::Cut | Kind::Unknown | Kind::Late => format!(" n{} from {}", self.target + 1, self.service.name()),
            Kind::Kill | Kind::Drain | Kind::Pause | Kind::Skew | Kind::Link => format!(" n{}", self.target + 1),
            _ => String::new(),
        };
        format!("{}{whom} at {} ms for {} ms", self.kind.name(), self.at_ms, self.for_ms)
    }
}

/// Returns the faults of a seed, the earliest first: none up to six, of `kinds`.
pub fn plan(chance: &dyn Chance, kinds: &[Kind]) -> Vec<Fault> {
    let count = if kinds.is_empty() { 0 } else { (chance.fraction() * 7.0) as usize };
    let mut faults: Vec<Fault> = (0..count)
        .map(|_| Fault::draw(kinds[((chance.fraction() * kinds.len() as f64) as usize).min(kinds.len() - 1)], chance))
        .collect();
    faults.sort_by_key(|fault| fault.at_ms);
    faults
}
