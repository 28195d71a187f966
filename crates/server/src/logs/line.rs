//! A log line: the time, the service, the level, the message, the process's identity, then the event's own fields.
//!
//! In text, a value is quoted if it contains spaces or other characters that could end it, so that an event is always
//! one line and its fields can be split again. In JSON, numbers and booleans keep their type. Values are cut at
//! [`VALUE_BYTES_MAX`].

use std::fmt::{self, Write as _};

use jiff::Timestamp;
use parking_lot::RwLock;
use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// A longer value is cut: an error may contain all output of a handler.
const VALUE_BYTES_MAX: usize = 4_096;
/// Fields by which the `log` crate repeats data of the event.
const FOREIGN: &str = "log.";
const MESSAGE: &str = "message";

/// The fields that every line of this process carries.
pub type Identity = RwLock<Vec<(&'static str, String)>>;

/// Formats an event as a line of text: `TIME SERVICE LEVEL MESSAGE key=value …`.
pub struct Text {
    pub service: String,
    pub identity: &'static Identity,
    pub colours: bool,
}

/// Formats an event as a JSON object: `time`, `level`, `service`, `target`, `message`, the identity, then the event's
/// own fields.
pub struct Json {
    pub service: String,
    pub identity: &'static Identity,
}

impl<S, N> FormatEvent<S, N> for Text
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, _: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let fields = Fields::of(event);
        let level = event.metadata().level();
        write!(writer, "{} {} ", Timestamp::now(), self.service)?;
        match self.colours.then(|| colour(*level)) {
            Some(colour) => write!(writer, "\x1b[{colour}m{:>5}\x1b[0m", level.as_str())?,
            None => write!(writer, "{:>5}", level.as_str())?,
        }
        if !fields.message.is_empty() {
            writer.write_char(' ')?;
            fields.message.chars().try_for_each(|letter| match letter {
                letter if letter.is_control() => write!(writer, "{}", letter.escape_default()),
                letter => writer.write_char(letter),
            })?;
        }
        for (name, value) in self.identity.read().iter().filter(|(name, _)| !fields.has(name)) {
            write!(writer, " {name}={}", Quoted(value))?;
        }
        for (name, value) in &fields.others {
            match value {
                Value::String(text) => write!(writer, " {name}={}", Quoted(text))?,
                value => write!(writer, " {name}={value}")?,
            }
        }
        writeln!(writer)
    }
}

impl<S, N> FormatEvent<S, N> for Json
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, _: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let fields = Fields::of(event);
        let metadata = event.metadata();
        let mut line = Map::new();
        line.insert("time".into(), Timestamp::now().to_string().into());
        line.insert("level".into(), metadata.level().as_str().into());
        line.insert("service".into(), self.service.as_str().into());
        line.insert("target".into(), metadata.target().into());
        line.insert(MESSAGE.into(), fields.message.as_str().into());
        for (name, value) in self.identity.read().iter().filter(|(name, _)| !fields.has(name)) {
            line.insert((*name).into(), value.as_str().into());
        }
        // The fields above keep their meaning on every line, whatever the names of an event's own fields.
        for (name, value) in fields.others {
            line.entry(name).or_insert(value);
        }
        writeln!(writer, "{}", Value::Object(line))
    }
}

fn colour(level: Level) -> &'static str {
    match level {
        Level::ERROR => "31",
        Level::WARN => "33",
        Level::INFO => "32",
        Level::DEBUG => "34",
        Level::TRACE => "35",
    }
}

/// Returns a value for a line of text, quoted unless it is one word.
struct Quoted<'a>(&'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_plain = |letter: char| !letter.is_whitespace() && !letter.is_control() && !matches!(letter, '"' | '=');
        if !self.0.is_empty() && self.0.chars().all(is_plain) {
            return f.write_str(self.0);
        }
        f.write_char('"')?;
        for letter in self.0.chars() {
            match letter {
                '"' => f.write_str("\\\"")?,
                '\\' => f.write_str("\\\\")?,
                letter if letter.is_control() => write!(f, "{}", letter.escape_default())?,
                letter => f.write_char(letter)?,
            }
        }
        f.write_char('"')
    }
}

/// The message and the fields of an event.
#[derive(Default)]
struct Fields {
    message: String,
    others: Vec<(String, Value)>,
}

impl Fields {
    fn of(event: &Event<'_>) -> Self {
        let mut fields = Fields::default();
        event.record(&mut fields);
        fields
    }

    /// Returns whether the event has this field itself. It takes precedence over the identity, which may be outdated.
    fn has(&self, name: &str) -> bool {
        self.others.iter().any(|(known, _)| known == name)
    }

    fn add(&mut self, field: &Field, value: Value) {
        match (field.name(), value) {
            (MESSAGE, Value::String(text)) => self.message = text,
            (MESSAGE, value) => self.message = value.to_string(),
            (name, _) if name.starts_with(FOREIGN) => {}
            (name, value) => self.others.push((name.to_owned(), value)),
        }
    }
}

/// Returns at most [`VALUE_BYTES_MAX`] of a text, with a mark if it was cut.
fn cut(mut text: String) -> String {
    if text.len() > VALUE_BYTES_MAX {
        text.truncate(text.floor_char_boundary(VALUE_BYTES_MAX));
        text.push('…');
    }
    text
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.add(field, cut(format!("{value:?}")).into());
    }

    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        self.add(field, cut(value.to_string()).into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field, cut(value.to_owned()).into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.add(field, value.into());
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.add(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(field, value.into());
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::{Arc, Mutex};

    use super::*;

    static NODE: Identity = RwLock::new(Vec::new());

    fn identity() -> &'static Identity {
        *NODE.write() = vec![("node", "n1".to_owned())];
        &NODE
    }

    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl Write for Written {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().expect("not poisoned").extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn logged<F>(format: F, log: impl FnOnce()) -> String
    where
        F: for<'a> FormatEvent<tracing_subscriber::Registry, tracing_subscriber::fmt::format::DefaultFields>
            + Send
            + Sync
            + 'static,
    {
        use tracing_subscriber::layer::SubscriberExt as _;
        let written = Written::default();
        let writer = written.clone();
        let layer = tracing_subscriber::fmt::layer().event_format(format).with_writer(move || writer.clone());
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), log);
        let bytes = written.0.lock().expect("not poisoned").clone();
        String::from_utf8(bytes).expect("UTF-8")
    }

    fn text(log: impl FnOnce()) -> String {
        logged(Text { service: "jobs".into(), identity: identity(), colours: false }, log)
    }

    #[test]
    fn a_line_of_text_has_time_service_level_message_identity_and_fields() {
        let line = text(|| tracing::info!(count = 3, error = "connection refused", "heartbeat failed"));
        let (time, rest) = line.split_once(' ').expect("a time, then more");
        assert!(time.parse::<Timestamp>().is_ok(), "{line}");
        assert_eq!(rest, "jobs  INFO heartbeat failed node=n1 count=3 error=\"connection refused\"\n");
    }

    #[test]
    fn a_field_that_repeats_the_identity_is_written_once() {
        let line = text(|| tracing::info!(node = "n1", "heartbeat"));
        assert!(line.ends_with(" INFO heartbeat node=n1\n"), "{line}");
        let line = text(|| tracing::info!(node = "n2", "renamed"));
        assert!(line.ends_with(" INFO renamed node=n2\n"), "{line}");
    }

    #[test]
    fn whatever_a_value_holds_a_line_of_text_is_one_line() {
        let hostile = "two\nlines \x1b[31m \"quoted\" a=b \\";
        let line = text(|| tracing::warn!(error = hostile, empty = "", "failed"));
        assert_eq!(line.lines().count(), 1, "{line:?}");
        let quoted = r#"error="two\nlines \u{1b}[31m \"quoted\" a=b \\" empty="""#;
        assert!(line.trim_end().ends_with(quoted), "{line}");
    }

    #[test]
    fn a_long_value_is_cut() {
        let line = text(|| tracing::warn!(error = "ä".repeat(10_000), "failed"));
        assert!(line.len() < VALUE_BYTES_MAX + 200, "{} bytes", line.len());
        assert!(line.trim_end().ends_with('…'), "{line}");
    }

    #[test]
    fn a_line_of_json_is_one_object_with_numbers_as_numbers() {
        let line = logged(Json { service: "jobs".into(), identity: identity() }, || {
            tracing::info!(count = 3, ratio = 0.5, is_late = true, service = "mine", "wrote \"so\"\nand more");
        });
        assert_eq!(line.lines().count(), 1, "{line}");
        let line: Value = serde_json::from_str(&line).expect("JSON");
        assert_eq!((&line["service"], &line["node"], &line["level"]), (&"jobs".into(), &"n1".into(), &"INFO".into()));
        assert_eq!(line["message"], "wrote \"so\"\nand more");
        assert_eq!((&line["count"], &line["ratio"], &line["is_late"]), (&3.into(), &0.5.into(), &true.into()));
    }
}
