//! A form for a job: empty, or a copy of another whose arguments can be edited.

use askama::Template;
use axum::extract::{Request, State};
use convoke_core::jobs::JobSpec;
use convoke_core::limits::ARGS_BYTES_MAX;
use convoke_core::{JobId, duration};

use crate::AppState;
use crate::body::{JOB_BYTES_MAX, Params};
use crate::dashboard::fields::{self, FormField};
use crate::dashboard::form::Form;
use crate::dashboard::layout::{self, Frame, JOBS, Page};
use crate::dashboard::routes::PageRoutes;
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
    fields: Vec<FormField>,
    delay: String,
}

async fn fill_in(State(state): State<AppState>, frame: Frame, mut params: Params, share: Share) -> ApiResult {
    let copied = params.name::<JobId>("copy")?;
    let fields = match copied {
        None => fields::empty(),
        Some(id) => {
            share.reserve(ARGS_BYTES_MAX).await?;
            fields::copy_of(&state.coordinator.job_view(id).await?.definition, frame.viewer.payloads_hidden)
        }
    };
    let title = if copied.is_some() { "Enqueue a copy" } else { "Enqueue a job" };
    let page = frame.page(JOBS, title).at_rest();
    layout::render(&NewJobTemplate { page, copied, fields, delay: String::new() })
}

async fn enqueue(State(state): State<AppState>, request: Request) -> ApiResult {
    let form = Form::read(request, FORM_BYTES_MAX).await?;
    let original = match form.parsed("copy", |text| text.parse::<JobId>().map_err(|invalid| invalid.message))? {
        Some(copied) => Some(state.coordinator.job_view(copied).await?.definition.template()),
        None => None,
    };
    let template = fields::read(&form, original.as_ref())?;
    let spec = JobSpec { id: None, template, delay: form.parsed("delay", duration::parse)?, run_at: None };
    let (job, created) = state.coordinator.enqueue(spec).await.map_err(ApiError::from)?;
    layout::see_other(&format!("/jobs/{}?notice={}", job.id, if created { "enqueued" } else { "exists" }))
}
