//! The processor time of a job: what the server, PostgreSQL and Redis use during a phase, divided by its jobs.

use std::time::Duration;

use anyhow::Result;

use crate::child::{Children, Engines};
use crate::processor_time::LocalServer;
use crate::report::Report;

/// The processes whose time is known: the private servers, and engines on this machine.
pub struct Meters<'a> {
    children: &'a Children,
    engines: Vec<(&'static str, LocalServer)>,
}

/// The time used so far, by process.
pub struct Reading(Vec<(&'static str, Duration)>);

impl<'a> Meters<'a> {
    pub fn new(children: &'a Children, engines: &Engines) -> Self {
        let postgres = engines.store.as_deref().filter(|url| url.starts_with("postgres"));
        let redis = engines.bus.as_deref().filter(|url| url.starts_with("redis://"));
        let found = |name, url: Option<&str>| Some((name, LocalServer::at(url?)?));
        let engines = [found("Postgres", postgres), found("Redis", redis)].into_iter().flatten().collect();
        Meters { children, engines }
    }

    pub fn read(&self) -> Result<Reading> {
        let mut used = Vec::new();
        if !self.children.is_empty() {
            used.push(("Server", self.children.processor_time()?));
        }
        used.extend(self.engines.iter().filter_map(|(name, server)| Some((*name, server.used()?))));
        Ok(Reading(used))
    }

    /// Adds the time of each process for a job since `before`.
    pub fn report(&self, report: &mut Report, phase: &str, before: &Reading, jobs: u64) -> Result<()> {
        let now = self.read()?;
        for (name, used) in &now.0 {
            let Some((_, earlier)) = before.0.iter().find(|(other, _)| other == name) else { continue };
            let us = used.saturating_sub(*earlier).as_secs_f64() * 1e6 / jobs.max(1) as f64;
            let shown = if *name == "Postgres" { "PostgreSQL" } else { name };
            report.add(format!("{phase}{name}CpuUs"), &format!("  processor time a job, {shown}"), us, "µs");
        }
        Ok(())
    }
}
