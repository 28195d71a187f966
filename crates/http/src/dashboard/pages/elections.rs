//! Elections: the namespaces of the leases, with holder, epoch, members and terms.

use askama::Template;
use axum::extract::State;

use crate::AppState;
use crate::body::Params;
use crate::dashboard::layout::{self, ELECTIONS, Frame, Page};
use crate::dashboard::routes::PageRoutes;
use crate::dashboard::text::{Local, encode, span};
use crate::elections::{self, Namespace};
use crate::error::ApiResult;

/// Namespaces that are read for the list.
const READ_MAX: usize = 20;

pub fn routes() -> PageRoutes {
    PageRoutes::new().page("/elections", show)
}

#[derive(Template)]
#[template(path = "elections.html")]
struct ElectionsTemplate {
    page: Page,
    leases: String,
    /// Whether the backend lists its namespaces.
    is_listed: bool,
    wanted: String,
    elections: Vec<Election>,
    /// Namespaces that are only named.
    more: Vec<(String, String)>,
}

struct Election {
    namespace: String,
    holder: Option<String>,
    epoch: String,
    remaining: String,
    members: Vec<String>,
    figures: Vec<(&'static str, String)>,
    terms: Vec<(String, String, Local, Option<Local>, &'static str)>,
}

impl Election {
    fn of(read: Namespace) -> Self {
        let figures = read.metrics.as_ref().and_then(|metrics| serde_json::to_value(metrics).ok());
        let figure = |name: &'static str, key: &str| {
            let value = figures.as_ref()?.get(key)?;
            Some((name, value.as_str().map_or_else(|| value.to_string(), str::to_owned)))
        };
        let figures = [
            figure("Elections won", "electionsWon"),
            figure("Heartbeats", "heartbeats"),
            figure("Failed heartbeats", "heartbeatFailures"),
            figure("Contention", "contentionEvents"),
        ];
        let terms = read.terms.iter().map(|term| {
            let why = term.ended_by.map_or("leads now", |by| by.as_str());
            (term.epoch.to_string(), term.node.to_string(), Local(term.began_at), term.ended_at.map(Local), why)
        });
        Election {
            epoch: read.epoch.map(|epoch| epoch.to_string()).unwrap_or_default(),
            remaining: read.remaining.map(span).unwrap_or_default(),
            figures: figures.into_iter().flatten().collect(),
            terms: terms.collect(),
            namespace: read.namespace,
            holder: read.holder,
            members: read.members,
        }
    }
}

async fn show(State(state): State<AppState>, mut params: Params, frame: Frame) -> ApiResult {
    let wanted = params.text("namespace")?;
    let listed = elections::read_namespaces(&state).await?;
    let is_listed = listed.namespaces.is_some();
    let names = match &wanted {
        Some(name) => vec![name.clone()],
        None => listed.namespaces.unwrap_or_else(|| vec![convoke_runtime::jobs::NAMESPACE.to_owned()]),
    };
    let mut shown = Vec::new();
    for name in names.iter().take(READ_MAX) {
        shown.push(Election::of(elections::read_namespace(&state, name).await?));
    }
    let link = |name: &String| (name.clone(), format!("/elections?namespace={}", encode(name)));
    let template = ElectionsTemplate {
        page: frame.page(ELECTIONS, "Elections"),
        leases: listed.leases,
        is_listed,
        wanted: wanted.unwrap_or_default(),
        elections: shown,
        more: names.iter().skip(READ_MAX).map(link).collect(),
    };
    layout::render(&template)
}
