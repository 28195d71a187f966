//! Prints responses: tables for lists, lines of name and value for a single item.

use std::io::{self, Write as _};

use comfy_table::{ContentArrangement, Table, presets};
use jiff::Timestamp;
use serde_json::Value;

/// Writes a line to standard output. If its reader has gone, it returns an error instead of a panic.
pub fn line(text: impl AsRef<str>) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_ref().as_bytes())?;
    out.write_all(b"\n")?;
    out.flush()
}

/// Prints a table without borders, for use with `cut` and `grep`.
pub fn table(headers: &[&str], rows: Vec<Vec<String>>) -> io::Result<()> {
    line(render(headers, rows))
}

pub fn render(headers: &[&str], rows: Vec<Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(headers.iter().map(|header| header.to_uppercase()));
    // A job's texts must not move the terminal's cursor.
    table.add_rows(rows.into_iter().map(|row| row.into_iter().map(|cell| printable(&cell))));
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    table.trim_fmt()
}

/// Returns lines of name and value, the values aligned. Empty values are left out.
pub fn fields(pairs: &[(&str, String)]) -> io::Result<()> {
    line(titled(pairs))
}

pub fn titled(pairs: &[(&str, String)]) -> String {
    let width = pairs.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let present = pairs.iter().filter(|(_, value)| !value.is_empty());
    let lines: Vec<String> = present.map(|(name, value)| format!("{name:width$}  {}", printable(value))).collect();
    lines.join("\n")
}

/// Returns the text with its control characters escaped.
pub fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() && c != '\t' { shown.extend(c.escape_default()) } else { shown.push(c) }
    }
    shown
}

/// Returns the value at a dotted path as text; empty if there is none.
pub fn text(value: &Value, path: &str) -> String {
    match path.split('.').try_fold(value, |value, key| value.get(key)) {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}

/// Returns the list under a name.
pub fn list<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    value.get(name).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Returns how long ago an instant was, in one unit.
pub fn age(value: &Value, path: &str) -> String {
    let at = text(value, path);
    at.parse::<Timestamp>().map_or(at, |at| distance(at, Timestamp::now()))
}

fn distance(at: Timestamp, now: Timestamp) -> String {
    let seconds = now.as_second() - at.as_second();
    let compact = match seconds.unsigned_abs() {
        seconds @ 0..120 => format!("{seconds}s"),
        seconds @ 120..7_200 => format!("{}m", seconds / 60),
        seconds @ 7_200..172_800 => format!("{}h", seconds / 3_600),
        seconds => format!("{}d", seconds / 86_400),
    };
    if seconds < 0 { format!("in {compact}") } else { compact }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_no_borders_and_no_trailing_spaces() {
        let rows = vec![vec!["a".into(), "1".into()], vec!["longer".into(), "a\nb\u{1b}[2J".into()]];
        assert_eq!(render(&["name", "value"], rows), "NAME    VALUE\na       1\nlonger  a\\nb\\u{1b}[2J");
    }

    #[test]
    fn ages_are_one_number_and_one_unit() {
        let at = |second| Timestamp::from_second(second).expect("in range");
        let now = at(1_000_000);
        for (then, shown) in
            [(1_000_000, "0s"), (999_881, "119s"), (999_880, "2m"), (990_000, "2h"), (0, "11d"), (1_000_030, "in 30s")]
        {
            assert_eq!(distance(at(then), now), shown);
        }
    }

    #[test]
    fn a_value_is_found_by_its_path() {
        let value = serde_json::json!({"a":{"b":"x","n":null,"i":7}});
        assert_eq!(["a.b", "a.n", "a.i", "z.y"].map(|path| text(&value, path)), ["x", "", "7", ""]);
    }
}
