//! Reads the audit.

use axum::extract::State;
use convoke_core::audit::{AuditEntry, AuditPage, AuditQuery};
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::AppState;
use crate::body::{self, Params};
use crate::error::ApiResult;
use crate::memory::Share;
use crate::openapi as doc;

pub fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(list))
}

/// A page of the acts of operators.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct Audit {
    entries: Vec<AuditEntry>,
    /// Start of the next page; null at the end.
    next_cursor: Option<String>,
}

/// Acts of operators, newest first
///
/// Each entry has who changed what, when, by the API, the command line or a page: cancelled and retried jobs, changes of queues and
/// schedules, drains, logins. Enqueues of clients are not acts of operators, those by the dashboard are. Entries have no
/// arguments, results or logs. They are never changed, and are deleted after `retention.audit`.
#[utoipa::path(get, path = "/v1/audit", tag = "audit", params(doc::AuditParams), responses(
    (status = 200, body = Audit),
    doc::Refused,
))]
async fn list(State(state): State<AppState>, mut params: Params, share: Share) -> ApiResult {
    let query = query(&mut params)?;
    params.end()?;
    share.reserve_page().await?;
    let AuditPage { entries, next_cursor } = page(&state, &query).await?;
    Ok(body::ok(&Audit { entries, next_cursor: next_cursor.map(|cursor| cursor.to_string()) }))
}

/// Parses the parameters of a read.
pub fn query(params: &mut Params) -> ApiResult<AuditQuery> {
    Ok(AuditQuery {
        who: params.text("who")?,
        action: params.text("action")?,
        target: params.text("target")?,
        after: params.parse("after")?,
        before: params.parse("before")?,
        cursor: params.parse("cursor")?,
        limit: params.limit()?,
    })
}

/// Returns a page of the audit.
pub async fn page(state: &AppState, query: &AuditQuery) -> ApiResult<AuditPage> {
    Ok(state.coordinator.store().audit(query).await?)
}
