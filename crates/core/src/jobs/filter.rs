//! The filter of jobs, as people and programs give it: by `GET /v1/jobs`, by an action on all jobs that match, in the filter bar of the
//! dashboard, on the command line.
//!
//! A new filter is a field of [`JobFilter`], its line in [`query`](JobFilter::query), and its field of [`JobQuery`]. Parameters, the
//! schema, the words of the bar and the text of the audit follow from the field. [`FILTERS`] has the names in the order in which they
//! are shown.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use jiff::Timestamp;
use serde::de::{self, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use super::lifecycle::Status;
use super::listing::JobQuery;
use crate::duration;
use crate::error::Invalid;
use crate::flat::{self, Extra};
use crate::ids::{JobType, QueueName, ScheduleName};

/// The jobs that match all fields that are given.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema, utoipa::IntoParams), schema(as = JobFilterFields), into_params(parameter_in = Query))]
#[serde(rename_all = "camelCase", deny_unknown_fields, expecting = "an object")]
pub struct JobFilter {
    /// One or several states
    #[cfg_attr(feature = "openapi", param(style = Form, explode = false, example = json!(["pending", "running"])))]
    #[serde(default, deserialize_with = "statuses", skip_serializing_if = "Vec::is_empty")]
    pub status: Vec<Status>,
    /// Jobs of this type
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub job_type: Option<JobType>,
    /// Jobs whose type begins with this text
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, example = "email."), param(value_type = Option<String>, example = "email."))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub type_prefix: Option<JobType>,
    /// Jobs of this queue
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<QueueName>,
    /// Jobs with this correlation id
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<String>,
    /// Jobs that have this tag
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
    /// Jobs that this schedule made
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<ScheduleName>,
    /// Jobs that were created then or later: an instant, or a duration before now
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, example = "2h"), param(value_type = Option<String>, example = "2h"))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<Moment>,
    /// Jobs that were created before: an instant, or a duration before now
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, example = "2030-01-31T09:00:00Z"), param(value_type = Option<String>, example = "2030-01-31T09:00:00Z"))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Moment>,
}

/// The jobs of an action on all that match a filter.
#[derive(Debug, Default, PartialEq)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = JobFilter))]
pub struct JobSelection {
    /// The filter.
    #[cfg_attr(feature = "openapi", serde(flatten))]
    pub filter: JobFilter,
    /// All jobs that the action applies to. Without it an empty filter is rejected.
    #[cfg_attr(feature = "openapi", schema(required = false))]
    pub all: bool,
}

impl<'de> Deserialize<'de> for JobSelection {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (filter, All(all)) = flat::read(deserializer)?;
        Ok(JobSelection { filter, all: all.unwrap_or_default() })
    }
}

#[derive(Default)]
struct All(Option<bool>);

impl<'de> Extra<'de> for All {
    const FIELDS: Option<&'static [&'static str]> = Some(&["all"]);

    fn read<A: MapAccess<'de>>(&mut self, _: Cow<'de, str>, map: &mut A) -> Result<(), A::Error> {
        flat::fill(&mut self.0, "all", map)
    }
}

/// The names of the fields of a [`JobFilter`], as parameters and in JSON.
pub const FILTERS: [&str; 9] =
    ["status", "type", "typePrefix", "queue", "correlationId", "tag", "schedule", "after", "before"];

/// Returns a filter's word in the filter bar and in the audit: its name without `Id`.
pub fn word_of(name: &str) -> &str {
    name.strip_suffix("Id").unwrap_or(name)
}

impl JobFilter {
    /// Returns the query for the jobs that match at `now`.
    pub fn query(self, now: Timestamp) -> JobQuery {
        JobQuery {
            statuses: self.status,
            job_type: self.job_type,
            type_prefix: self.type_prefix.map(|prefix| prefix.to_string()),
            queue: self.queue,
            correlation_id: self.correlation_id,
            tag: self.tag,
            schedule: self.schedule,
            created_from: self.after.map(|at| at.before(now)),
            created_until: self.before.map(|at| at.before(now)),
            ..JobQuery::default()
        }
    }

    /// Returns the filter with instants in the place of durations before `now`.
    pub fn at(self, now: Timestamp) -> JobFilter {
        let at = |moment: Moment| Moment::At(moment.before(now));
        JobFilter { after: self.after.map(at), before: self.before.map(at), ..self }
    }

    /// Returns the filter as words of the filter bar.
    pub fn words(&self) -> String {
        let word = |(name, text): (&str, String)| match name {
            "typePrefix" => format!("type:{text}*"),
            name => format!("{}:{text}", word_of(name)),
        };
        self.texts().into_iter().map(word).collect::<Vec<_>>().join(" ")
    }

    /// Reads a filter from the texts of its fields, by name. An error names the field whose text is wrong.
    pub fn from_texts(texts: Map<String, Value>) -> Result<JobFilter, Invalid> {
        let read = |texts| serde_json::from_value::<JobFilter>(Value::Object(texts));
        read(texts.clone()).map_err(|error| {
            let alone = |(name, text): (String, Value)| {
                let error = read(Map::from_iter([(name.clone(), text)])).err()?;
                Some(Invalid::new(name, error.to_string()))
            };
            texts.into_iter().find_map(alone).unwrap_or_else(|| Invalid::new("filter", error.to_string()))
        })
    }

    /// Returns the texts of the fields that are given, in the order of [`FILTERS`].
    pub fn texts(&self) -> Vec<(&'static str, String)> {
        let Ok(Value::Object(fields)) = serde_json::to_value(self) else { unreachable!("a filter has named fields") };
        let text = |value: &Value| match value {
            Value::Array(words) => words.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(","),
            value => value.as_str().unwrap_or_default().to_owned(),
        };
        FILTERS.into_iter().filter_map(|name| Some((name, text(fields.get(name)?)))).collect()
    }
}

/// A bound of the times of jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// An instant.
    At(Timestamp),
    /// So long before now.
    Ago(Duration),
}

impl Moment {
    /// Returns the instant, counted back from `now`.
    pub fn before(self, now: Timestamp) -> Timestamp {
        match self {
            Moment::At(at) => at,
            Moment::Ago(ago) => now.checked_sub(ago).unwrap_or(Timestamp::MIN),
        }
    }
}

impl FromStr for Moment {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(ago) = duration::parse(text) {
            return Ok(Moment::Ago(ago));
        }
        let expected = "expected an instant such as \"2030-01-31T09:00:00Z\", or a duration before now such as \"2h\"";
        text.parse().map(Moment::At).map_err(|_| format!("{expected}, got {text:?}"))
    }
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Moment::At(at) => write!(f, "{at}"),
            Moment::Ago(ago) => f.write_str(&duration::format(*ago)),
        }
    }
}

impl Serialize for Moment {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Moment {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

/// Reads statuses from a list, or from a text in which commas separate them.
fn statuses<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Status>, D::Error> {
    struct Statuses;

    impl<'de> Visitor<'de> for Statuses {
        type Value = Vec<Status>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a list of statuses")
        }

        fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
            let known = || Status::ALL.map(Status::as_str).join(", ");
            let status = |word| {
                let expected = || E::custom(format!("expected one or several of {}, got {word:?}", known()));
                Status::parse(word).ok_or_else(expected)
            };
            text.split(',').map(status).collect()
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
            let mut statuses = Vec::new();
            while let Some(status) = seq.next_element()? {
                statuses.push(status);
            }
            Ok(statuses)
        }
    }

    deserializer.deserialize_any(Statuses)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn whole() -> JobFilter {
        JobFilter {
            status: vec![Status::Failed, Status::TimedOut],
            job_type: JobType::new("email.send").ok(),
            type_prefix: JobType::new("email.").ok(),
            queue: QueueName::new("mail").ok(),
            correlation_id: Some("a, b".into()),
            tag: Some("x:y".into()),
            schedule: ScheduleName::new("nightly").ok(),
            after: Some(Moment::Ago(Duration::from_secs(7_200))),
            before: "2030-01-31T09:00:00Z".parse().ok(),
        }
    }

    #[test]
    fn the_names_are_those_of_the_fields() {
        let filter = serde_json::to_value(whole()).expect("JSON");
        let names: Vec<&str> = filter.as_object().expect("an object").keys().map(String::as_str).collect();
        let mut known = FILTERS.to_vec();
        known.sort_unstable();
        assert_eq!(names, known);
    }

    #[test]
    fn a_filter_is_read_back_from_its_texts_and_from_json() {
        let texts = whole().texts();
        let names: Vec<&str> = texts.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, FILTERS);
        assert_eq!(texts[0].1, "failed,timedOut");
        let map = texts.into_iter().map(|(name, text)| (name.to_owned(), text.into())).collect();
        assert_eq!(JobFilter::from_texts(map), Ok(whole()));
        let json = serde_json::to_string(&whole()).expect("JSON");
        assert_eq!(serde_json::from_str::<JobFilter>(&json).expect("a filter"), whole());
    }

    #[test]
    fn every_field_reaches_the_query() {
        let now = "2030-01-31T10:00:00Z".parse().expect("an instant");
        let query = whole().query(now);
        assert_eq!(query.created_from, Some("2030-01-31T08:00:00Z".parse().expect("an instant")));
        for (name, text) in whole().texts() {
            let one = JobFilter::from_texts(Map::from_iter([(name.to_owned(), text.into())])).expect(name);
            assert_ne!(one.query(now), JobQuery::default(), "{name} is lost");
        }
    }

    #[test]
    fn the_words_of_a_filter_have_instants() {
        let now = "2030-01-31T10:00:00Z".parse().expect("an instant");
        let words = whole().at(now).words();
        for word in ["status:failed,timedOut", "type:email.*", "correlation:a, b", "after:2030-01-31T08:00:00Z"] {
            assert!(words.contains(word), "{words}");
        }
        assert_eq!(JobFilter::default().words(), "");
    }

    #[test]
    fn a_selection_has_the_fields_of_a_filter_and_all() {
        let read = serde_json::from_value::<JobSelection>;
        let both = read(json!({"queue": "mail", "all": true})).expect("a selection");
        assert_eq!((both.filter.queue.is_some(), both.all), (true, true));
        assert_eq!(read(json!({})).expect("a selection"), JobSelection::default());
        assert!(read(json!({"every": true})).is_err() && read(json!({"all": 1})).is_err());
    }

    #[test]
    fn an_error_names_the_field() {
        for (name, text, part) in [
            ("status", "failed,broken", "timedOut"),
            ("after", "yesterday", "a duration before now"),
            ("typePrefix", "", "expected"),
            ("state", "failed", "unknown field"),
        ] {
            let texts = json!({"queue": "mail", name: text}).as_object().cloned().expect("an object");
            let invalid = JobFilter::from_texts(texts).expect_err(name);
            assert_eq!(invalid.field, name);
            assert!(invalid.message.contains(part), "{name}: {}", invalid.message);
        }
    }
}
