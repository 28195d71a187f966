//! The faults, each from its begin to the restart of what it ended.

use std::time::Duration;

use anyhow::Result;
use clap::ValueEnum;
use rand::RngExt as _;
use rand::rngs::StdRng;

use super::On;
use super::cluster::Cluster;
use super::engines::Engines;
use crate::Usage;

/// The longest time for which a killed process stays away.
const AWAY_MAX: Duration = Duration::from_secs(4);

/// A fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Fault {
    /// A node is killed and starts again
    Kill,
    /// The node that leads is killed and starts again
    Leader,
    /// A node stands still for longer than its lease
    Pause,
    /// A node hands its runs over, leaves, and starts again
    Drain,
    /// A worker is killed and starts again
    Worker,
    /// Redis is killed and starts again empty
    Redis,
    /// PostgreSQL restarts in the middle of commits
    Postgres,
}

impl Fault {
    pub fn as_str(self) -> &'static str {
        match self {
            Fault::Kill => "kill",
            Fault::Leader => "leader",
            Fault::Pause => "pause",
            Fault::Drain => "drain",
            Fault::Worker => "worker",
            Fault::Redis => "redis",
            Fault::Postgres => "postgres",
        }
    }

    fn is_possible(self, on: On) -> bool {
        match self {
            Fault::Redis => on == On::PostgresRedis,
            Fault::Postgres => on != On::Sqlite,
            _ => true,
        }
    }

    /// Returns the faults to use. A fault that was requested must be possible.
    pub fn mix(requested: &[Fault], on: On) -> Result<Vec<Fault>, Usage> {
        if let Some(wrong) = requested.iter().find(|fault| !fault.is_possible(on)) {
            let (fault, engines) = (wrong.as_str(), on.as_str());
            return Err(Usage(format!("--faults: {fault} needs an engine that a cluster on {engines} does not have")));
        }
        let mut mix: Vec<Fault> = match requested {
            [] => Fault::value_variants().iter().copied().filter(|fault| fault.is_possible(on)).collect(),
            requested => requested.to_vec(),
        };
        mix.dedup();
        Ok(mix)
    }

    /// Lets the fault happen. Returns what happened, in words.
    pub async fn happen(self, cluster: &mut Cluster, engines: &mut Engines, random: &mut StdRng) -> Result<String> {
        let mut node = random.random_range(0..cluster.size());
        let worker = random.random_range(0..cluster.workers());
        let away = AWAY_MAX.mul_f64(random.random::<f64>());
        // A pause matters most to the leader.
        let wants_leader = self == Fault::Leader || (self == Fault::Pause && random.random::<bool>());
        if wants_leader && let Some(leader) = cluster.leader().await {
            node = leader;
        }
        let name = cluster.name(node).to_owned();
        let seconds = away.as_secs_f64();
        Ok(match self {
            Fault::Kill | Fault::Leader => {
                cluster.kill_node(node).await?;
                tokio::time::sleep(away).await;
                cluster.start_node(node, engines).await?;
                let role = if self == Fault::Leader { ", which led," } else { "" };
                format!("{name}{role} was killed and was away for {seconds:.1}s")
            }
            Fault::Pause => {
                cluster.pause_node(node).await?;
                format!("{name} stood still for {:.1}s", super::cluster::PAUSED_FOR.as_secs_f64())
            }
            Fault::Drain => {
                cluster.drain_node(node).await?;
                cluster.start_node(node, engines).await?;
                format!("{name} drained and started again")
            }
            Fault::Worker => {
                cluster.kill_worker(worker).await?;
                tokio::time::sleep(away).await;
                cluster.start_worker(worker).await?;
                format!("worker-{} was killed and was away for {seconds:.1}s", worker + 1)
            }
            Fault::Redis => {
                if let Some(redis) = &mut engines.redis {
                    redis.restart().await?;
                }
                "Redis was killed and came back empty".to_owned()
            }
            Fault::Postgres => {
                if let Some(postgres) = &mut engines.postgres {
                    postgres.restart().await?;
                }
                "PostgreSQL was restarted in the middle of commits".to_owned()
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mix_is_what_the_engines_allow() {
        let names = |on| Fault::mix(&[], on).expect("a mix").iter().map(|it| it.as_str()).collect::<Vec<_>>().join(" ");
        assert_eq!(names(On::Sqlite), "kill leader pause drain worker");
        assert_eq!(names(On::PostgresRedis), "kill leader pause drain worker redis postgres");
        let refused = Fault::mix(&[Fault::Kill, Fault::Redis], On::Postgres).expect_err("no Redis").to_string();
        assert_eq!(refused, "--faults: redis needs an engine that a cluster on PostgreSQL does not have");
    }
}
