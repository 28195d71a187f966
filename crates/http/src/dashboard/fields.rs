//! The fields of a job's definition as pages show them: one table for the facts of a job and for the forms of jobs and schedules.
//!
//! Values are read from the definition's JSON and written to it, so that a row needs no code of its own. A field of the definition that
//! has no input keeps its value when a form is saved.

use convoke_core::Json;
use convoke_core::jobs::{JobDefinition, JobTemplate, Priority};
use serde::Serialize;
use serde_json::{Map, Value};

use super::filter;
use super::form::Form;
use super::json::pretty;
use super::text::encode;
use crate::error::{ApiError, ApiResult};

/// A field of a job's definition.
struct Field {
    /// Its name in JSON and in forms.
    name: &'static str,
    /// Its name in the facts of a job, which leave it out without one.
    fact: Option<&'static str>,
    /// The list that its value leads to.
    link: Link,
    /// Its input in forms.
    input: Option<Input>,
}

enum Link {
    None,
    /// The page of the queue.
    Queue,
    /// The jobs that this word of the filter bar finds.
    Jobs(&'static str),
}

struct Input {
    label: &'static str,
    hint: &'static str,
    placeholder: &'static str,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Required,
    Text,
    Number,
    Priority,
    /// Words with spaces between them.
    Words,
    /// The arguments, which are kept as they were written.
    Json,
}

const fn input(label: &'static str, placeholder: &'static str, kind: Kind) -> Option<Input> {
    Some(Input { label, hint: "", placeholder, kind })
}

const fn hinted(label: &'static str, hint: &'static str, kind: Kind) -> Option<Input> {
    Some(Input { label, hint, placeholder: "", kind })
}

const fn row(name: &'static str, fact: Option<&'static str>, link: Link, input: Option<Input>) -> Field {
    Field { name, fact, link, input }
}

/// In the order in which they are shown.
static FIELDS: [Field; 10] = [
    row("type", Some("Type"), Link::Jobs("type"), input("Type", "", Kind::Required)),
    row("queue", Some("Queue"), Link::Queue, input("Queue", "default", Kind::Text)),
    row("priority", Some("Priority"), Link::None, input("Priority", "", Kind::Priority)),
    row("maxRetries", None, Link::None, input("Retries", "default", Kind::Number)),
    row("retryPolicy", Some("Retry delays"), Link::None, None),
    row(
        "timeout",
        Some("Timeout of an attempt"),
        Link::None,
        input("Timeout of an attempt", "none, or 30s", Kind::Text),
    ),
    row("correlationId", Some("Correlation"), Link::Jobs("correlation"), input("Correlation id", "", Kind::Text)),
    row("uniqueKey", Some("Unique key"), Link::None, input("Unique key", "", Kind::Text)),
    row("tags", Some("Tag"), Link::Jobs("tag"), hinted("Tags", "separated by spaces", Kind::Words)),
    row("args", None, Link::None, hinted("Arguments", "JSON", Kind::Json)),
];

/// The option that is valid beside a unique key only.
const UNIQUE_FOR: &str = "uniqueFor";

/// A line of the facts of a job: a name, a text, and the list of other jobs like it.
pub struct Fact {
    pub name: &'static str,
    pub text: String,
    pub path: Option<String>,
}

/// Returns the facts of a definition. The arguments are shown apart from them.
pub fn facts(definition: &JobDefinition) -> Vec<Fact> {
    let values = object(&JobDefinition { args: Json::null(), ..definition.clone() });
    let mut facts = Vec::new();
    for field in &FIELDS {
        let (Some(name), Some(value)) = (field.fact, values.get(field.name)) else { continue };
        facts.extend(texts(value).into_iter().map(|text| Fact { name, path: field.link.path(&text), text }));
    }
    facts
}

impl Link {
    fn path(&self, text: &str) -> Option<String> {
        match self {
            Link::None => None,
            Link::Queue => Some(format!("/queues/{}", encode(text))),
            Link::Jobs(word) => Some(filter::path_of(word, text)),
        }
    }
}

/// Returns the texts of a value: one of each item of a list, none of an absent one.
fn texts(value: &Value) -> Vec<String> {
    match value {
        Value::Null => Vec::new(),
        Value::String(text) => vec![text.clone()],
        Value::Array(items) => items.iter().flat_map(texts).collect(),
        Value::Object(policy) => vec![delays(policy)],
        value => vec![value.to_string()],
    }
}

/// Returns a retry policy in words.
fn delays(policy: &Map<String, Value>) -> String {
    let text = |name: &str| policy.get(name).and_then(Value::as_str).unwrap_or_default();
    let multiplier = policy.get("multiplier").and_then(Value::as_f64).unwrap_or(1.0);
    let (initial, most, jitter) = (text("initialDelay"), text("maxDelay"), text("jitter"));
    format!("{initial}, then times {multiplier}, at most {most}, jitter {jitter}")
}

/// An input of a form with its present text.
pub struct FormField {
    pub name: &'static str,
    pub label: &'static str,
    pub hint: &'static str,
    pub placeholder: &'static str,
    pub text: String,
    pub is_required: bool,
    pub is_number: bool,
    pub is_area: bool,
    pub choices: Vec<&'static str>,
}

/// Returns the inputs of a form that nobody has filled in.
pub fn empty() -> Vec<FormField> {
    let no_values = Map::new();
    inputs(&no_values, "{}".into())
}

/// Returns the inputs with the values of a template.
pub fn of(template: &JobTemplate) -> Vec<FormField> {
    let args = template.args.as_ref().map(|args| pretty(args.as_str())).unwrap_or_default();
    inputs(&object(&JobTemplate { args: None, ..template.clone() }), args)
}

/// Returns what a copy of a job is made from.
pub fn template_of_copy(definition: &JobDefinition, payloads_hidden: bool) -> JobTemplate {
    let template = definition.template();
    let args = template.args.filter(|_| !payloads_hidden);
    // The unique key may still be taken by the job itself.
    JobTemplate { args, unique_key: None, ..template }
}

/// Returns the inputs for a copy of a job.
pub fn copy_of(definition: &JobDefinition, payloads_hidden: bool) -> Vec<FormField> {
    of(&template_of_copy(definition, payloads_hidden))
}

fn inputs(values: &Map<String, Value>, args: String) -> Vec<FormField> {
    let field = |field: &Field| {
        let Input { label, hint, placeholder, kind } = *field.input.as_ref()?;
        let given = values.get(field.name).map(texts).unwrap_or_default().join(" ");
        let is_priority = kind == Kind::Priority;
        Some(FormField {
            name: field.name,
            label,
            hint,
            placeholder,
            text: match kind {
                Kind::Json => args.clone(),
                Kind::Priority if given.is_empty() => Priority::default().as_str().into(),
                _ => given,
            },
            is_required: kind == Kind::Required,
            is_number: kind == Kind::Number,
            is_area: kind == Kind::Json,
            choices: if is_priority { Priority::ALL.map(Priority::as_str).to_vec() } else { Vec::new() },
        })
    };
    FIELDS.iter().filter_map(field).collect()
}

/// Reads a template from a form. Options that the form has no input for are those of `original`. The coordinator checks the limits, as it
/// does for the API.
pub fn read(form: &Form, original: Option<&JobTemplate>) -> ApiResult<JobTemplate> {
    let mut values =
        original.map(|original| object(&JobTemplate { args: None, ..original.clone() })).unwrap_or_default();
    let mut args = None;
    for field in &FIELDS {
        let Some(Input { kind, .. }) = field.input else { continue };
        let value = match kind {
            Kind::Required => Some(form.need(field.name)?.into()),
            Kind::Text | Kind::Priority => form.get(field.name).map(Value::from),
            Kind::Number => form.parsed(field.name, number)?.map(Value::from),
            Kind::Words => form.get(field.name).map(|text| text.split_whitespace().collect()),
            Kind::Json => {
                args = form.parsed(field.name, json)?;
                None
            }
        };
        match value {
            Some(value) => drop(values.insert(field.name.into(), value)),
            None => drop(values.remove(field.name)),
        }
    }
    if !values.contains_key("uniqueKey") {
        values.remove(UNIQUE_FOR);
    }
    let template: JobTemplate = serde_path_to_error::deserialize(Value::Object(values))
        .map_err(|error| ApiError::invalid(error.path().to_string(), error.inner().to_string()))?;
    Ok(JobTemplate { args, ..template })
}

fn number(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| format!("expected a whole number, got {text:?}"))
}

fn json(text: &str) -> Result<Json, String> {
    Json::parse(text.into()).map_err(|error| format!("expected JSON: {error}"))
}

/// Returns the fields of a value's JSON.
fn object(value: &impl Serialize) -> Map<String, Value> {
    match serde_json::to_value(value) {
        Ok(Value::Object(fields)) => fields,
        // A definition is an object with string keys.
        _ => Map::new(),
    }
}

#[cfg(test)]
mod tests {
    use convoke_core::jobs::RetrySettings;

    use super::*;

    fn template() -> JobTemplate {
        let json = r#"{"type":"email.send","queue":"mail","args":{"n":1},"priority":"high","maxRetries":5,
            "retryPolicy":{"initialDelay":"1s","multiplier":2.5,"maxDelay":"1m","jitter":"none"},"timeout":"30s",
            "correlationId":"order 7","uniqueKey":"k","uniqueFor":"1h","tags":["eu","a:b"]}"#;
        serde_json::from_str(json).expect("a template")
    }

    fn form_of(fields: &[FormField]) -> Form {
        Form::from_pairs(fields.iter().map(|field| (field.name.to_owned(), field.text.clone())).collect())
    }

    #[test]
    fn every_option_of_a_template_is_in_the_table_and_survives_a_form() {
        let template = template();
        let known: Vec<&str> = FIELDS.iter().map(|field| field.name).chain([UNIQUE_FOR]).collect();
        for name in object(&template).keys() {
            assert!(known.contains(&name.as_str()), "{name} is missing in the table");
        }
        let saved = read(&form_of(&of(&template)), Some(&template)).expect("a template");
        let (saved, template) = (object(&saved), object(&template));
        assert_eq!(saved, template);
    }

    #[test]
    fn a_copy_has_all_but_the_unique_key() {
        let definition = template().define(&RetrySettings::default());
        let copied = read(&form_of(&copy_of(&definition, false)), Some(&definition.template())).expect("a template");
        let expected = JobTemplate { unique_key: None, unique_for: None, ..template() };
        assert_eq!(object(&copied), object(&expected));
        assert!(copy_of(&definition, true).iter().all(|field| field.name != "args" || field.text.is_empty()));
    }

    #[test]
    fn the_facts_have_a_line_for_each_value() {
        let facts = facts(&template().define(&RetrySettings::default()));
        let lines: Vec<_> = facts.iter().map(|fact| (fact.name, fact.text.as_str(), fact.path.as_deref())).collect();
        for line in [
            ("Queue", "mail", Some("/queues/mail")),
            ("Retry delays", "1s, then times 2.5, at most 1m, jitter none", None),
            ("Timeout of an attempt", "30s", None),
            ("Correlation", "order 7", Some("/jobs?q=correlation%3A%22order%207%22")),
            ("Tag", "eu", Some("/jobs?q=tag%3Aeu")),
            ("Tag", "a:b", Some("/jobs?q=tag%3Aa%3Ab")),
        ] {
            assert!(lines.contains(&line), "{line:?} is not in {lines:?}");
        }
    }
}
