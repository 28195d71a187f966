//! A form for a job: empty, or a copy of another whose arguments can be edited.

use askama::Template;
use axum::extract::{Request, State};
use convoke_core::jobs::{JobDefinition, JobSpec, JobTemplate, Priority};
use convoke_core::limits::ARGS_BYTES_MAX;
use convoke_core::{JobId, JobType, Json, QueueName, duration};

use crate::AppState;
use crate::body::{JOB_BYTES_MAX, Params};
use crate::dashboard::form::Form;
use crate::dashboard::json::pretty;
use crate::dashboard::layout::{self, Frame, JOBS, Page};
use crate::dashboard::routes::PageRoutes;
use crate::dashboard::text;
use crate::error::{ApiError, ApiResult};
use crate::memory::Share;

/// Bytes of a form are percent-encoded: three for one, at worst.
pub const FORM_BYTES_MAX: usize = 3 * JOB_BYTES_MAX;

pub fn routes() -> PageRoutes {
    PageRoutes::new().page("/jobs/new", fill_in).form("/jobs/enqueue", enqueue)
}

#[derive(Template)]
#[template(path = "new_job.html")]
struct NewJobTemplate {
    page: Page,
    copied: Option<JobId>,
    fields: TemplateFields,
    delay: String,
}

/// The texts of the fields that jobs and schedules have in common.
#[derive(Debug, Default)]
pub struct TemplateFields {
    pub job_type: String,
    pub queue: String,
    pub args: String,
    pub priority: String,
    pub priorities: Vec<&'static str>,
    pub max_retries: String,
    pub timeout: String,
    pub correlation_id: String,
    pub unique_key: String,
    pub tags: String,
}

impl TemplateFields {
    /// Returns the fields of a form that nobody has filled in.
    pub fn empty() -> Self {
        let priorities = Priority::ALL.map(Priority::as_str).to_vec();
        TemplateFields {
            priority: Priority::default().as_str().into(),
            priorities,
            args: "{}".into(),
            ..Self::default()
        }
    }

    /// Returns the fields with the values of a template.
    pub fn of(template: &JobTemplate) -> Self {
        let shown = |text: &Option<String>| text.clone().unwrap_or_default();
        TemplateFields {
            job_type: template.job_type.to_string(),
            queue: template.queue.as_ref().map(ToString::to_string).unwrap_or_default(),
            args: template.args.as_ref().map(|args| pretty(args.as_str())).unwrap_or_default(),
            priority: template.priority.unwrap_or_default().as_str().into(),
            max_retries: template.max_retries.map(|number| number.to_string()).unwrap_or_default(),
            timeout: template.timeout.map(text::typed).unwrap_or_default(),
            correlation_id: shown(&template.correlation_id),
            unique_key: shown(&template.unique_key),
            tags: template.tags.clone().unwrap_or_default().join(" "),
            ..Self::empty()
        }
    }
}

/// Reads the template of a job from a form. The coordinator checks its limits, as it does for the API.
pub fn template_of(form: &Form) -> ApiResult<JobTemplate> {
    let tags: Vec<String> = form.get("tags").unwrap_or_default().split_whitespace().map(ToOwned::to_owned).collect();
    let number = |text: &str| text.parse::<u32>().map_err(|_| format!("expected a whole number, got {text:?}"));
    Ok(JobTemplate {
        queue: form.get("queue").map(QueueName::new).transpose()?,
        args: form
            .parsed("args", |text| Json::parse(text.into()).map_err(|error| format!("expected JSON: {error}")))?,
        priority: form.parsed("priority", priority)?,
        max_retries: form.parsed("maxRetries", number)?,
        timeout: form.parsed("timeout", duration::parse)?,
        correlation_id: form.get("correlationId").map(ToOwned::to_owned),
        unique_key: form.get("uniqueKey").map(ToOwned::to_owned),
        tags: (!tags.is_empty()).then_some(tags),
        ..JobTemplate::new(JobType::new(form.need("type")?)?)
    })
}

fn priority(text: &str) -> Result<Priority, String> {
    let known = Priority::ALL.into_iter().find(|priority| priority.as_str() == text);
    known.ok_or_else(|| format!("expected one of {}, got {text:?}", Priority::ALL.map(Priority::as_str).join(", ")))
}

async fn fill_in(State(state): State<AppState>, frame: Frame, mut params: Params, share: Share) -> ApiResult {
    let copied = params.name::<JobId>("copy")?;
    let fields = match copied {
        None => TemplateFields::empty(),
        Some(id) => {
            share.reserve(ARGS_BYTES_MAX).await?;
            let job = state.coordinator.job_view(id).await?;
            TemplateFields::of(&copy_of(job.definition.clone(), frame.viewer.payloads_hidden))
        }
    };
    let title = if copied.is_some() { "Enqueue a copy" } else { "Enqueue a job" };
    let page = frame.page(JOBS, title).at_rest();
    layout::render(&NewJobTemplate { page, copied, fields, delay: String::new() })
}

/// Returns what a copy of a job is made from.
pub fn copy_of(definition: JobDefinition, payloads_hidden: bool) -> JobTemplate {
    JobTemplate {
        queue: Some(definition.queue),
        args: (!payloads_hidden).then_some(definition.args),
        priority: Some(definition.priority),
        max_retries: Some(definition.max_retries),
        retry_policy: Some(definition.retry_policy),
        timeout: definition.timeout,
        correlation_id: definition.correlation_id,
        // Its key may still be taken by the job itself.
        unique_key: None,
        tags: Some(definition.tags),
        ..JobTemplate::new(definition.job_type)
    }
}

async fn enqueue(State(state): State<AppState>, request: Request) -> ApiResult {
    let form = Form::read(request, FORM_BYTES_MAX).await?;
    let mut template = template_of(&form)?;
    if let Some(copied) = form.parsed("copy", |text| text.parse::<JobId>().map_err(|invalid| invalid.message))? {
        // The form has no field for it: a copy is retried as its original is.
        let original = state.coordinator.job_view(copied).await?;
        template.retry_policy = Some(original.definition.retry_policy);
    }
    let spec = JobSpec { id: None, template, delay: form.parsed("delay", duration::parse)?, run_at: None };
    let (job, created) = state.coordinator.enqueue(spec).await.map_err(ApiError::from)?;
    layout::see_other(&format!("/jobs/{}?notice={}", job.id, if created { "enqueued" } else { "exists" }))
}
