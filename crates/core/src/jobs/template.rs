//! The definition of a job: all that a request sets but the time at which it runs. A new field of a job is added here.
//!
//! | type | who has it | options |
//! | --- | --- | --- |
//! | [`JobTemplate`] | requests: [`JobSpec`](super::JobSpec), [`ScheduleSpec`](super::ScheduleSpec), and schedules | may be left out |
//! | [`JobDefinition`] | stored jobs: [`NewJob`](super::NewJob), [`Job`](super::Job) | filled in with the coordinator's defaults |
//! | [`RunInput`] | workers: [`Dispatch`](super::wire::Dispatch), [`Assignment`](super::link::Assignment) | those that a worker needs |
//!
//! Stores keep a definition as its arguments and a [`document`](JobDefinition::document), which they never parse. The fields
//! by which jobs are listed are also given to them as search keys.

use std::borrow::Cow;
use std::sync::LazyLock;
use std::time::Duration;

use serde::de::{IgnoredAny, MapAccess};
use serde::{Deserialize, Serialize};

use super::priority::Priority;
use super::retry::{RetryPolicy, RetrySettings};
use super::wire::V1;
use crate::error::Invalid;
use crate::flat::{self, Extra};
use crate::ids::{DEFAULT_QUEUE, JobType, QueueName, ScheduleName};
use crate::json::Json;
use crate::limits::{ARGS_BYTES_MAX, NAME_BYTES_MAX, RETRIES_MAX};

use self::salvage::salvage;

/// What a request says about a job. Options that are left out get the coordinator's defaults when a job is made of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields, expecting = "an object")]
pub struct JobTemplate {
    /// The type of the job, which selects the handler that runs it.
    #[serde(rename = "type")]
    pub job_type: JobType,
    /// The queue of the job, `default` if it is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<QueueName>,
    /// The arguments of the job: any JSON of at most 1 MiB.
    #[cfg_attr(feature = "openapi", schema(value_type = Json))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub args: Option<Json>,
    /// The priority of the job, `normal` if it is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<Priority>,
    /// How often a failed job is retried.
    #[cfg_attr(feature = "openapi", schema(maximum = 1000))]
    #[serde(default, deserialize_with = "crate::whole::option", skip_serializing_if = "Option::is_none")]
    pub max_retries: Option<u32>,
    /// The delays of retries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_policy: Option<RetryPolicy>,
    /// How long one attempt may take.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, example = "30s"))]
    #[serde(default, with = "crate::duration::option", skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Duration>,
    /// Shown with the job, and a filter of lists.
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 255))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<String>,
    /// While a job with this key is live, no other is made.
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 255))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unique_key: Option<String>,
    /// How long the key stays taken, also after the job has ended.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, example = "1h"))]
    #[serde(default, with = "crate::duration::option", skip_serializing_if = "Option::is_none")]
    pub unique_for: Option<Duration>,
    /// Words under which the job is found: at most 16, of 1 to 64 bytes each.
    #[cfg_attr(feature = "openapi", schema(max_items = 16))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tags: Option<Vec<String>>,
}

/// A job as it was enqueued, with all defaults filled in.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct JobDefinition {
    /// The type of the job, which selects the handler that runs it.
    #[serde(rename = "type")]
    pub job_type: JobType,
    /// The queue of the job.
    pub queue: QueueName,
    /// The priority of the job.
    pub priority: Priority,
    /// The arguments of the job.
    pub args: Json,
    /// How often a failed job is retried.
    #[cfg_attr(feature = "openapi", schema(maximum = 1000))]
    pub max_retries: u32,
    /// The delays of its retries.
    pub retry_policy: RetryPolicy,
    /// How long one attempt may take.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, example = "30s"))]
    #[serde(with = "crate::duration::option", default)]
    pub timeout: Option<Duration>,
    /// Shown with the job, and a filter of lists.
    pub correlation_id: Option<String>,
    /// While the job is live, no other with this key is made.
    pub unique_key: Option<String>,
    /// Words under which the job is found.
    #[serde(default)]
    pub tags: Vec<String>,
}

/// The input of every run of a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct RunInput {
    /// The type of the job, which selects the handler that runs it.
    #[serde(rename = "type", alias = "Type")]
    pub job_type: JobType,
    /// The queue of the job.
    #[serde(alias = "Queue")]
    pub queue: QueueName,
    /// The arguments of the job.
    #[serde(alias = "Args")]
    pub args: Json,
    /// How often the job is retried if it fails.
    #[cfg_attr(feature = "openapi", schema(maximum = 1000))]
    #[serde(alias = "MaxRetries")]
    pub max_retries: u32,
    /// How long the run may take.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, example = "30s"))]
    #[serde(with = "crate::duration::option", default, alias = "Timeout")]
    pub timeout: Option<Duration>,
    /// The correlation id of the job.
    #[serde(default, alias = "CorrelationId")]
    pub correlation_id: Option<String>,
    /// The tags of the job.
    #[serde(default, skip_serializing_if = "Vec::is_empty", alias = "Tags")]
    pub tags: Vec<String>,
}

impl JobTemplate {
    /// The value of a field that the reader of the type around it fills in.
    pub(super) fn unread() -> Self {
        JobTemplate::new(JobType::unread())
    }

    /// Returns a template without options.
    pub fn new(job_type: JobType) -> Self {
        JobTemplate {
            job_type,
            queue: None,
            args: None,
            priority: None,
            max_retries: None,
            retry_policy: None,
            timeout: None,
            correlation_id: None,
            unique_key: None,
            unique_for: None,
            tags: None,
        }
    }

    /// Returns the size of its arguments.
    pub fn args_bytes(&self) -> usize {
        self.args.as_ref().map_or(0, |args| args.as_str().len())
    }

    /// Checks each field against its limits, and fields that belong together.
    pub fn check(&self) -> Result<(), Invalid> {
        if let Some(args) = &self.args {
            args.check("args", ARGS_BYTES_MAX)?;
        }
        if let Some(max_retries) = self.max_retries.filter(|max_retries| *max_retries > RETRIES_MAX) {
            return Err(Invalid::new("maxRetries", format!("expected 0 to {RETRIES_MAX}, got {max_retries}")));
        }
        if let Some(policy) = &self.retry_policy {
            policy.check()?;
        }
        // A document has whole milliseconds.
        if self.timeout.is_some_and(|timeout| timeout.as_millis() == 0) {
            return Err(Invalid::new("timeout", "expected a duration longer than zero; leave it out for no timeout"));
        }
        check_key("correlationId", self.correlation_id.as_deref())?;
        check_key("uniqueKey", self.unique_key.as_deref())?;
        if self.unique_for.is_some() && self.unique_key.is_none() {
            return Err(Invalid::unprocessable("uniqueFor", "expected only together with uniqueKey"));
        }
        check_tags(self.tags.as_deref().unwrap_or_default())
    }

    /// Fills in the options that were left out.
    pub fn define(self, defaults: &RetrySettings) -> JobDefinition {
        JobDefinition {
            job_type: self.job_type,
            queue: self.queue.unwrap_or_default(),
            priority: self.priority.unwrap_or_default(),
            args: self.args.unwrap_or_default(),
            max_retries: self.max_retries.unwrap_or(defaults.max_retries),
            retry_policy: self.retry_policy.unwrap_or_else(|| defaults.policy()),
            timeout: self.timeout,
            correlation_id: self.correlation_id,
            unique_key: self.unique_key,
            tags: self.tags.unwrap_or_default(),
        }
    }
}

fn check_key(field: &str, key: Option<&str>) -> Result<(), Invalid> {
    match key {
        Some("") => Err(Invalid::new(
            field,
            format!("expected 1 to {NAME_BYTES_MAX} bytes, got an empty string; leave it out for none"),
        )),
        Some(key) if key.len() > NAME_BYTES_MAX => {
            Err(Invalid::new(field, format!("expected at most {NAME_BYTES_MAX} bytes, got {}", key.len())))
        }
        // Not every store can keep one, and jobs must not depend on which it is.
        Some(key) if key.contains('\0') => Err(Invalid::new(field, "expected no NUL character, got one in it")),
        _ => Ok(()),
    }
}

/// Upper bound of the tags of a job.
pub const TAGS_MAX: usize = 16;
/// Upper bound of a tag's length.
pub const TAG_BYTES_MAX: usize = 64;

fn check_tags(tags: &[String]) -> Result<(), Invalid> {
    if tags.len() > TAGS_MAX {
        return Err(Invalid::new("tags", format!("expected at most {TAGS_MAX} tags, got {}", tags.len())));
    }
    for (place, tag) in tags.iter().enumerate() {
        let message = if tag.is_empty() {
            format!("expected 1 to {TAG_BYTES_MAX} bytes, got an empty string")
        } else if tag.len() > TAG_BYTES_MAX {
            format!("expected at most {TAG_BYTES_MAX} bytes, got {}", tag.len())
        } else if tag.chars().any(char::is_control) {
            "expected a tag without control characters, got one in it".to_owned()
        } else if tags[..place].contains(tag) {
            format!("expected each tag once, got {tag:?} again")
        } else {
            continue;
        };
        return Err(Invalid::new(format!("tags[{place}]"), message));
    }
    Ok(())
}

/// Returns the search key of jobs with this correlation id.
pub fn correlation_key(id: &str) -> String {
    format!("{CORRELATION_KEY}{id}")
}

/// The prefix of the search key of a correlation id.
pub const CORRELATION_KEY: &str = "c:";

/// Returns the search key of the jobs of a schedule.
pub fn schedule_key(name: &ScheduleName) -> String {
    format!("{SCHEDULE_KEY}{name}")
}

/// The prefix of the search key of a schedule.
pub const SCHEDULE_KEY: &str = "s:";

/// Returns the search key of jobs with this tag.
pub fn tag_key(tag: &str) -> String {
    format!("{TAG_KEY}{tag}")
}

/// The prefix of the search key of a tag.
pub const TAG_KEY: &str = "t:";

impl JobDefinition {
    pub(super) fn unread() -> Self {
        JobTemplate::unread().define(&RetrySettings::default())
    }

    /// Returns the template that defines the same job.
    pub fn template(&self) -> JobTemplate {
        JobTemplate {
            job_type: self.job_type.clone(),
            queue: Some(self.queue.clone()),
            args: Some(self.args.clone()),
            priority: Some(self.priority),
            max_retries: Some(self.max_retries),
            retry_policy: Some(self.retry_policy),
            timeout: self.timeout,
            correlation_id: self.correlation_id.clone(),
            unique_key: self.unique_key.clone(),
            unique_for: None,
            tags: Some(self.tags.clone()).filter(|tags| !tags.is_empty()),
        }
    }

    /// Returns the keys under which the job is found by a list with a filter: those of its definition and of the schedule
    /// that made it.
    pub(super) fn search_keys(&self, schedule: Option<&ScheduleName>) -> Vec<String> {
        let correlation = self.correlation_id.iter().map(|id| correlation_key(id));
        correlation.chain(self.tags.iter().map(|tag| tag_key(tag))).chain(schedule.map(schedule_key)).collect()
    }

    /// Returns what a run of the job is given, with these arguments.
    pub fn input(&self, args: Json) -> RunInput {
        RunInput {
            job_type: self.job_type.clone(),
            queue: self.queue.clone(),
            args,
            max_retries: self.max_retries,
            timeout: self.timeout,
            correlation_id: self.correlation_id.clone(),
            tags: self.tags.clone(),
        }
    }

    /// Returns all but the arguments, for [`from_document`](Self::from_document). Options that have the built-in default are
    /// left out, so that most documents are short.
    pub fn document(&self) -> String {
        let defaults = RetrySettings::default();
        let JobDefinition {
            job_type,
            queue,
            priority,
            args: _,
            max_retries,
            retry_policy,
            timeout,
            correlation_id,
            unique_key,
            tags,
        } = self;
        let written = WrittenDocument {
            v: V1,
            job_type,
            queue: Some(queue).filter(|queue| queue.as_str() != DEFAULT_QUEUE),
            priority: Some(*priority).filter(|priority| *priority != Priority::default()),
            max_retries: Some(*max_retries).filter(|max_retries| *max_retries != defaults.max_retries),
            retry_policy: Some(*retry_policy).filter(|policy| *policy != defaults.policy()),
            timeout: *timeout,
            correlation_id: correlation_id.as_deref(),
            unique_key: unique_key.as_deref(),
            tags,
        };
        match serde_json::to_string(&written) {
            Ok(document) => document,
            Err(error) => unreachable!("a document did not serialise: {error}"),
        }
    }

    /// Reads a document and the arguments that a store kept beside it.
    pub fn from_document(document: &str, args: Json) -> serde_json::Result<Self> {
        let Document { template } = serde_json::from_str(document)?;
        Ok(JobTemplate { args: Some(args), ..template }.define(&RetrySettings::default()))
    }
}

/// Reads the documents of many jobs. Jobs of one type mostly have the same document, which is parsed once.
#[derive(Debug, Default)]
pub struct Documents(Option<ReadDocument>);

/// A document that was read.
#[derive(Debug)]
pub struct ReadDocument {
    text: String,
    /// The definition, with `null` as its arguments. Fields that cannot be read have the built-in defaults.
    pub definition: JobDefinition,
    /// Why a field cannot be read. A run of such a job must not be sent.
    pub error: Option<String>,
}

impl Documents {
    /// Reads a document.
    pub fn read(&mut self, document: &str) -> &ReadDocument {
        let last = match self.0.take() {
            Some(last) if last.text == document => last,
            _ => {
                let (definition, error) = match JobDefinition::from_document(document, Json::null()) {
                    Ok(definition) => (definition, None),
                    Err(error) => (salvage(document), Some(error.to_string())),
                };
                ReadDocument { text: document.to_owned(), definition, error }
            }
        };
        self.0.insert(last)
    }
}

/// The form in which stores keep a definition without its arguments, as it is written: with the fields of [`JobTemplate`],
/// borrowed, because every new job is written this way.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct WrittenDocument<'a> {
    v: V1,
    #[serde(rename = "type")]
    job_type: &'a JobType,
    #[serde(skip_serializing_if = "Option::is_none")]
    queue: Option<&'a QueueName>,
    #[serde(skip_serializing_if = "Option::is_none")]
    priority: Option<Priority>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_retries: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_policy: Option<RetryPolicy>,
    #[serde(with = "crate::duration::option", skip_serializing_if = "Option::is_none")]
    timeout: Option<Duration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    correlation_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    unique_key: Option<&'a str>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    tags: &'a [String],
}

/// The same, as it is read.
struct Document {
    template: JobTemplate,
}

impl<'de> Deserialize<'de> for Document {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (template, Version(v)) = flat::read(deserializer)?;
        v.ok_or_else(|| serde::de::Error::missing_field("v"))?;
        Ok(Document { template })
    }
}

#[derive(Default)]
struct Version(Option<V1>);

impl<'de> Extra<'de> for Version {
    /// A newer node of the cluster knows fields that this one does not.
    const FIELDS: Option<&'static [&'static str]> = None;

    fn read<A: MapAccess<'de>>(&mut self, field: Cow<'de, str>, map: &mut A) -> Result<(), A::Error> {
        match &*field {
            "v" => flat::fill(&mut self.0, "v", map),
            _ => map.next_value::<IgnoredAny>().map(drop),
        }
    }
}

impl RunInput {
    /// Cloned, because it is used for every message about a run.
    pub(super) fn unread() -> Self {
        static UNREAD: LazyLock<RunInput> = LazyLock::new(|| JobDefinition::unread().input(Json::null()));
        UNREAD.clone()
    }
}

mod salvage;
#[cfg(test)]
mod tests;
