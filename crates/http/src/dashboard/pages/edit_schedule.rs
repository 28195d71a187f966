//! The form of a schedule: a new one, or one that is edited.

use askama::Template;
use axum::extract::{Request, State};
use convoke_core::jobs::schedule::{Schedule, ScheduleSpec};
use convoke_core::{Error, ScheduleName, duration};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::new_job::FORM_BYTES_MAX;
use super::schedules::word;
use crate::AppState;
use crate::audit::{self, Noted};
use crate::body::Segment;
use crate::dashboard::fields::{self, FormField};
use crate::dashboard::form::Form;
use crate::dashboard::layout::{self, Frame, Page, SCHEDULES};
use crate::dashboard::routes::PageRoutes;
use crate::dashboard::text::{self, encode};
use crate::error::{ApiError, ApiResult};

pub fn routes() -> PageRoutes {
    PageRoutes::new().page("/schedules/new", fill_in).form("/schedules/save", save).page("/schedules/{name}/edit", edit)
}

#[derive(Template)]
#[template(path = "edit_schedule.html")]
struct EditTemplate {
    page: Page,
    name: String,
    is_new: bool,
    cron: String,
    every: String,
    tz: String,
    /// The name, the label, the choices and the present choice.
    choices: Vec<Choice>,
    fields: Vec<FormField>,
}

struct Choice {
    name: &'static str,
    label: &'static str,
    values: &'static [&'static str],
    value: String,
}

fn choices(schedule: Option<&Schedule>) -> Vec<Choice> {
    let choice =
        |name, label, values, value: Option<String>| Choice { name, label, values, value: value.unwrap_or_default() };
    vec![
        choice("missed", "Missed ticks", &["latest", "skip", "all"], schedule.map(|schedule| word(&schedule.missed))),
        choice("overlap", "While a job is live", &["skip", "allow"], schedule.map(|schedule| word(&schedule.overlap))),
        choice(
            "day",
            "If both day fields are set",
            &["or", "and"],
            schedule.and_then(|schedule| schedule.day.as_ref().map(word)),
        ),
    ]
}

async fn fill_in(frame: Frame) -> ApiResult {
    layout::render(&EditTemplate {
        page: frame.page(SCHEDULES, "New schedule").at_rest(),
        name: String::new(),
        is_new: true,
        cron: String::new(),
        every: String::new(),
        tz: String::new(),
        choices: choices(None),
        fields: fields::empty(),
    })
}

async fn edit(State(state): State<AppState>, Segment(name): Segment<ScheduleName>, frame: Frame) -> ApiResult {
    if frame.viewer.payloads_hidden {
        // Saving the form would replace arguments that it cannot show.
        return Err(ApiError::forbidden("this token hides arguments, which the form of a schedule has"));
    }
    let schedule = state.coordinator.schedule(&name).await?;
    layout::render(&EditTemplate {
        page: frame.page(SCHEDULES, format!("Edit schedule {name}")).at_rest(),
        name: name.to_string(),
        is_new: false,
        cron: schedule.cron.clone().unwrap_or_default(),
        every: schedule.every.map(text::typed).unwrap_or_default(),
        tz: schedule.tz.clone().unwrap_or_default(),
        choices: choices(Some(&schedule)),
        fields: fields::of(&schedule.template),
    })
}

/// Parses a choice by its name in JSON.
fn chosen<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    serde_json::from_value(Value::String(text.into())).map_err(|error| error.to_string())
}

async fn save(State(state): State<AppState>, request: Request) -> ApiResult {
    let form = Form::read(request, FORM_BYTES_MAX).await?;
    let name = ScheduleName::new(form.need("name")?)?;
    let known = state.coordinator.store().schedule(&name).await?;
    let before = audit::state_of_schedule(&state, &name).await;
    if form.has("new") && known.is_some() {
        let message = format!("schedule {name} exists already: open it to edit it");
        return Err(Error::Conflict(message).into());
    }
    let template = fields::read(&form, known.as_ref().map(|known| &known.template))?;
    let cron = form.get("cron").map(ToOwned::to_owned);
    // An interval has neither a zone nor days.
    let of_cron = |name| form.get(name).filter(|_| cron.is_some());
    let spec = ScheduleSpec {
        template,
        every: form.parsed("every", duration::parse)?,
        tz: of_cron("tz").map(ToOwned::to_owned),
        day: of_cron("day").map(chosen).transpose().map_err(|message| ApiError::invalid("day", message))?,
        missed: form.parsed("missed", chosen)?,
        overlap: form.parsed("overlap", chosen)?,
        paused: known.map(|known| known.paused),
        cron,
    };
    let (_, is_new) = state.coordinator.put_schedule(name.clone(), spec).await?;
    let noted = Noted {
        action: Some(if is_new { "schedule.create" } else { "schedule.update" }.into()),
        target: Some(name.to_string()),
        after: audit::state_of_schedule(&state, &name).await,
        before,
        ..Noted::default()
    };
    Ok(noted.on(layout::see_other(&format!("/schedules/{}?notice=schedule-saved", encode(name.as_str())))?))
}
