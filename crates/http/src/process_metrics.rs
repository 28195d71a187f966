//! The resources of the process, under the names that Prometheus users expect: `process_*`.
//!
//! Read from `/proc` whenever the metrics are rendered. Systems without `/proc` have none of them.

use std::fmt::Write as _;

/// The present use of resources.
struct Usage {
    cpu_seconds: f64,
    resident_bytes: u64,
    /// Since the Unix epoch.
    start_seconds: f64,
    open_fds: Option<usize>,
    max_fds: Option<u64>,
}

/// Returns the metrics in Prometheus's text format.
pub fn text() -> String {
    read().map_or_else(String::new, |usage| render(&usage))
}

fn render(usage: &Usage) -> String {
    let mut text = String::new();
    let mut add = |name: &str, kind: &str, help: &str, value: String| {
        // Cannot fail: it is written to a string.
        let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}\n");
    };
    let cpu = format!("{:.2}", usage.cpu_seconds);
    add("process_cpu_seconds_total", "counter", "CPU time spent in user and system mode, in seconds.", cpu);
    let resident = usage.resident_bytes.to_string();
    add("process_resident_memory_bytes", "gauge", "Resident memory in bytes.", resident);
    let start = format!("{:.2}", usage.start_seconds);
    add("process_start_time_seconds", "gauge", "When the process started, in seconds since the Unix epoch.", start);
    if let Some(open) = usage.open_fds {
        add("process_open_fds", "gauge", "Open file descriptors.", open.to_string());
    }
    if let Some(max) = usage.max_fds {
        add("process_max_fds", "gauge", "How many file descriptors may be open.", max.to_string());
    }
    text
}

fn read() -> Option<Usage> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    let system = std::fs::read_to_string("/proc/stat").ok()?;
    let ticks_per_second = rustix::param::clock_ticks_per_second() as f64;
    let Stat { cpu_ticks, start_ticks, resident_pages } = Stat::parse(&stat)?;
    let booted: f64 = system.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()?;
    // One of them is the descriptor of this directory.
    let open_fds = std::fs::read_dir("/proc/self/fd").ok().map(|open| open.count().saturating_sub(1));
    Some(Usage {
        cpu_seconds: cpu_ticks as f64 / ticks_per_second,
        resident_bytes: resident_pages * rustix::param::page_size() as u64,
        start_seconds: booted + start_ticks as f64 / ticks_per_second,
        open_fds,
        max_fds: rustix::process::getrlimit(rustix::process::Resource::Nofile).current,
    })
}

/// The fields of `/proc/self/stat` that are shown.
#[derive(Debug, PartialEq)]
struct Stat {
    cpu_ticks: u64,
    start_ticks: u64,
    resident_pages: u64,
}

impl Stat {
    fn parse(text: &str) -> Option<Stat> {
        // The second field is the program's name in parentheses, which may contain spaces and parentheses.
        let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
        let number = |place: usize| fields.get(place - 3)?.parse::<u64>().ok();
        Some(Stat { cpu_ticks: number(14)? + number(15)?, start_ticks: number(22)?, resident_pages: number(24)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_behind_any_name() {
        let numbers = (4..=52).map(|place| place.to_string()).collect::<Vec<_>>().join(" ");
        let expected = Stat { cpu_ticks: 14 + 15, start_ticks: 22, resident_pages: 24 };
        for name in ["convoke", "a) R 1 (b", "x y"] {
            assert_eq!(Stat::parse(&format!("7 ({name}) S {numbers}\n")).as_ref(), Some(&expected), "{name}");
        }
        for text in ["", "7 (convoke", "7 (convoke) S 4 5", "7 (convoke) S x"] {
            assert_eq!(Stat::parse(text), None, "{text}");
        }
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn this_process_is_shown_as_it_is() {
        let usage = read().expect("/proc");
        let now = jiff::Timestamp::now().as_second() as f64;
        assert!(usage.start_seconds > now - 86_400.0 && usage.start_seconds < now + 2.0, "{}", usage.start_seconds);
        assert!(usage.resident_bytes > 1 << 20);
        assert!(usage.open_fds.is_some_and(|open| open >= 3 && usage.max_fds.is_none_or(|max| (open as u64) < max)));
        let text = render(&usage);
        assert!(text.contains("# TYPE process_cpu_seconds_total counter\nprocess_cpu_seconds_total "), "{text}");
    }
}
