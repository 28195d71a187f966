//! What the process says of itself, on standard error: lines to read, or JSON in production.

use std::fmt;
use std::io::IsTerminal as _;

use jiff::Timestamp;
use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use crate::config::Surroundings;

/// Starts logging. `verbose` lowers the level to debug, then to trace.
pub fn start(surroundings: &Surroundings, verbose: u8) {
    let level = match verbose {
        0 => surroundings.log_level,
        1 => "debug",
        _ => "trace",
    };
    // Libraries speak of every frame; that is of use only to whoever asks for everything.
    let filter = if verbose > 1 { level.to_owned() } else { format!("{level},hyper=warn,hyper_util=warn,rustls=warn") };
    let logs = tracing_subscriber::fmt().with_env_filter(EnvFilter::new(filter)).with_writer(std::io::stderr);
    let started = if surroundings.production {
        logs.event_format(Json { service: surroundings.name.clone() }).try_init()
    } else {
        let readable = logs.with_timer(Named { service: surroundings.name.clone() });
        readable.with_ansi(std::io::stderr().is_terminal()).with_target(false).try_init()
    };
    if let Err(error) = started {
        eprintln!("logs cannot be started: {error}");
    }
}

/// Lines to read begin with the time and the service's name: several processes may write to one terminal or file.
struct Named {
    service: String,
}

impl FormatTime for Named {
    fn format_time(&self, writer: &mut Writer<'_>) -> fmt::Result {
        SystemTime.format_time(writer)?;
        write!(writer, " {}", self.service)
    }
}

/// One JSON object a line: `time`, `level`, `service`, `target`, `message`, then the event's own fields.
struct Json {
    service: String,
}

impl<S, N> FormatEvent<S, N> for Json
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, _: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let metadata = event.metadata();
        let mut line = Map::new();
        line.insert("time".into(), Timestamp::now().to_string().into());
        line.insert("level".into(), metadata.level().as_str().into());
        line.insert("service".into(), self.service.as_str().into());
        line.insert("target".into(), metadata.target().into());
        event.record(&mut Fields(&mut line));
        writeln!(writer, "{}", Value::Object(line))
    }
}

struct Fields<'a>(&'a mut Map<String, Value>);

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.insert(field.name().into(), format!("{value:?}").into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name().into(), value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.0.insert(field.name().into(), value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.0.insert(field.name().into(), value.into());
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.0.insert(field.name().into(), value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.0.insert(field.name().into(), value.into());
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::{Arc, Mutex};

    use super::*;

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

    #[test]
    fn a_line_to_read_names_the_service_after_the_time() {
        let written = Written::default();
        let writer = written.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_writer(move || writer.clone())
            .with_timer(Named { service: "jobs".into() })
            .with_ansi(false)
            .with_target(false)
            .finish();
        tracing::subscriber::with_default(subscriber, || tracing::info!(count = 3, "said so"));
        let line = String::from_utf8(written.0.lock().expect("not poisoned").clone()).expect("UTF-8");
        let (time, rest) = line.split_once(' ').expect("a time, then more");
        assert!(time.parse::<Timestamp>().is_ok(), "{line}");
        assert_eq!(rest, "jobs  INFO said so count=3\n");
    }

    #[test]
    fn in_production_a_line_is_one_json_object_that_names_the_service() {
        let written = Written::default();
        let writer = written.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_writer(move || writer.clone())
            .event_format(Json { service: "jobs".into() })
            .finish();
        tracing::subscriber::with_default(subscriber, || tracing::info!(count = 3, "said \"so\"\nand more"));
        let line = String::from_utf8(written.0.lock().expect("not poisoned").clone()).expect("UTF-8");
        assert_eq!(line.lines().count(), 1, "{line}");
        let line: Value = serde_json::from_str(&line).expect("JSON");
        assert_eq!(line["service"], "jobs");
        assert_eq!(line["level"], "INFO");
        assert_eq!(line["message"], "said \"so\"\nand more");
        assert_eq!(line["count"], 3);
    }
}
