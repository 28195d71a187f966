//! The results: a table to read, or figures to compare.

use std::io::{self, IsTerminal as _, Write as _};
use std::time::Duration;

use anyhow::Result;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Map, Value, json};

struct Figure {
    key: String,
    label: String,
    value: f64,
    unit: &'static str,
}

pub struct Report {
    bench: &'static str,
    figures: Vec<Figure>,
    json: bool,
    bar: Option<ProgressBar>,
}

impl Report {
    pub fn new(bench: &'static str, json: bool) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new_spinner();
            let style = ProgressStyle::with_template("{spinner} [{elapsed}] {msg}");
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
            bar.enable_steady_tick(Duration::from_millis(200));
            bar
        });
        Report { bench, figures: Vec::new(), json, bar }
    }

    /// Prints what is being measured now.
    pub fn phase(&self, name: &str) {
        match &self.bar {
            Some(bar) => bar.set_message(name.to_owned()),
            None => eprintln!("measuring: {name}"),
        }
    }

    pub fn add(&mut self, key: impl Into<String>, label: &str, value: f64, unit: &'static str) {
        let figure = Figure { key: key.into(), label: label.to_owned(), value, unit };
        if let Some(bar) = &self.bar {
            bar.println(format!("{:<56} {:>12} {unit}", figure.label, shown(value)));
        }
        self.figures.push(figure);
    }

    /// Removes what shows the progress, before a result of another form is printed.
    pub fn clear(self) {
        if let Some(bar) = self.bar {
            bar.finish_and_clear();
        }
    }

    pub fn print(self) -> Result<()> {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        if self.json {
            return Ok(line(self.to_json().to_string())?);
        }
        for Figure { label, value, unit, .. } in &self.figures {
            line(format!("{label:<56} {:>12} {unit}", shown(*value)))?;
        }
        Ok(())
    }

    fn to_json(&self) -> Value {
        let figures: Map<String, Value> =
            self.figures.iter().map(|figure| (figure.key.clone(), json!(round(figure.value)))).collect();
        json!({ "bench": self.bench, "version": env!("CARGO_PKG_VERSION"), "figures": figures })
    }
}

/// Writes a line to standard output. A reader that went away is an error like any other, not a panic.
pub fn line(text: impl AsRef<str>) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_ref().as_bytes())?;
    out.write_all(b"\n")?;
    out.flush()
}

fn round(value: f64) -> f64 {
    if value.abs() >= 100.0 { value.round() } else { (value * 1_000.0).round() / 1_000.0 }
}

/// Formats large numbers in groups of three digits, small ones with their significant decimals.
fn shown(value: f64) -> String {
    if !value.is_finite() {
        return "-".into();
    }
    if value.abs() < 100.0 {
        return format!("{value:.2}");
    }
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_shown_as_people_read_them() {
        for (value, text) in [(0.456, "0.46"), (99.9, "99.90"), (100.4, "100"), (1_234_567.8, "1,234,568")] {
            assert_eq!(shown(value), text);
        }
        assert_eq!(shown(f64::NAN), "-");
    }

    #[test]
    fn figures_come_by_their_keys() {
        let mut report = Report { bench: "jobs", figures: Vec::new(), json: true, bar: None };
        report.add("singlePerSecond", "enqueue", 12_345.678, "/s");
        report.add("startP99Ms", "p99", 3.456_78, "ms");
        assert_eq!(report.to_json()["figures"], json!({"singlePerSecond":12_346.0,"startP99Ms":3.457}));
    }
}
