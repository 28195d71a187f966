//! Processor time of processes, by the kernel's counters under `/proc`: it survives a machine that others use too.

use std::collections::HashSet;
use std::time::Duration;

use anyhow::{Context as _, Result};
use rustix::process::Pid;

/// Returns the processor time that a process has used, in user and system mode.
pub fn of_process(pid: Pid) -> Result<Duration> {
    let stat = Stat::read(pid.as_raw_nonzero().get()).context("the processor time of a process cannot be read")?;
    Ok(ticks(stat.own))
}

/// A PostgreSQL or Redis on this machine: the process that listens on the port of a URL.
pub struct LocalServer {
    pid: i32,
}

impl LocalServer {
    /// `None` if the URL leads to another machine, or if the process cannot be found.
    pub fn at(url: &str) -> Option<LocalServer> {
        listener(local_port(url)?).map(|pid| LocalServer { pid })
    }

    /// Returns the time of the process, of its children, and of those of them that have ended.
    pub fn used(&self) -> Option<Duration> {
        let own = Stat::read(self.pid)?;
        let children = processes().filter_map(Stat::read).filter(|stat| stat.parent == self.pid);
        let children: u64 = children.map(|stat| stat.own).sum();
        Some(ticks(own.own + own.ended_children + children))
    }
}

/// Fields of `/proc/PID/stat`; times in ticks.
struct Stat {
    parent: i32,
    own: u64,
    ended_children: u64,
}

impl Stat {
    fn read(pid: i32) -> Option<Stat> {
        Stat::parse(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    fn parse(text: &str) -> Option<Stat> {
        // The name in parentheses may contain anything; the fields after it are plain, the state first.
        let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
        let number = |place: usize| fields.get(place)?.parse::<u64>().ok();
        let parent = fields.get(1)?.parse().ok()?;
        Some(Stat { parent, own: number(11)? + number(12)?, ended_children: number(13)? + number(14)? })
    }
}

fn ticks(count: u64) -> Duration {
    Duration::from_secs_f64(count as f64 / rustix::param::clock_ticks_per_second().max(1) as f64)
}

fn processes() -> impl Iterator<Item = i32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten();
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
}

/// Returns the port of a URL with a loopback host.
fn local_port(url: &str) -> Option<u16> {
    let (scheme, rest) = url.split_once("://")?;
    let place = rest.split(['/', '?']).next()?;
    let place = place.rsplit_once('@').map_or(place, |(_, place)| place);
    let (host, port) = match place.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, port.parse().ok()?),
        _ => (place, if scheme.starts_with("postgres") { 5432 } else { 6379 }),
    };
    ["127.0.0.1", "localhost", "[::1]"].contains(&host).then_some(port)
}

/// Returns the first process that has the listening socket of a port: its children may have it too.
fn listener(port: u16) -> Option<i32> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(|path| std::fs::read_to_string(path).unwrap_or_default());
    let sockets: HashSet<String> =
        tables.iter().flat_map(|table| table.lines()).filter_map(|line| listening(line, port)).collect();
    let holds = |pid: &i32| {
        let files = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten();
        files
            .filter_map(|file| std::fs::read_link(file.ok()?.path()).ok())
            .any(|file| sockets.contains(&*file.to_string_lossy()))
    };
    processes().filter(holds).min()
}

/// Returns the name of the socket if a line of `/proc/net/tcp` shows that it listens on the port.
fn listening(line: &str, port: u16) -> Option<String> {
    let mut fields = line.split_whitespace();
    let local = fields.nth(1)?;
    let state = fields.nth(1)?;
    let inode = fields.nth(5)?;
    let is_it = state == "0A" && local.rsplit_once(':')?.1 == format!("{port:04X}");
    is_it.then(|| format!("socket:[{inode}]"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_port_of_a_local_url_is_found() {
        for (url, port) in [
            ("postgres://postgres@127.0.0.1:17003/postgres?sslmode=disable", Some(17003)),
            ("postgres://u:p@localhost/app", Some(5432)),
            ("redis://localhost", Some(6379)),
            ("redis://[::1]:7000/0", Some(7000)),
            ("redis://[::1]", Some(6379)),
            ("postgres://db.example/app", None),
            ("memory:", None),
        ] {
            assert_eq!(local_port(url), port, "{url}");
        }
    }

    #[test]
    fn a_listening_socket_is_recognized() {
        let line =
            "   0: 0100007F:426B 00000000:0000 0A 00000000:00000000 00:00000000 00000000   106        0 48120 1 0";
        assert_eq!(listening(line, 17003).as_deref(), Some("socket:[48120]"));
        assert_eq!(listening(line, 17004), None);
        assert_eq!(listening(&line.replace(" 0A ", " 01 "), 17003), None);
    }

    #[test]
    fn the_process_that_listens_is_found_with_its_time() {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("redis://{}", socket.local_addr().expect("an address"));
        let server = LocalServer::at(&url).expect("it is this process");
        assert_eq!(server.pid, rustix::process::getpid().as_raw_nonzero().get());
        assert!(server.used().is_some());
    }

    #[test]
    fn a_name_with_parentheses_does_not_shift_the_fields() {
        let fields: Vec<String> = (2..20).map(|number| number.to_string()).collect();
        let stat = Stat::parse(&format!("7 (a) b (c)) S {}", fields.join(" "))).expect("a stat");
        assert_eq!((stat.parent, stat.own, stat.ended_children), (2, 12 + 13, 14 + 15));
    }
}
