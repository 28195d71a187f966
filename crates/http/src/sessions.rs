//! The sessions of browsers, all at once.

use axum::extract::State;
use http::StatusCode;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::AppState;
use super::body::NoParams;
use super::error::ApiResult;
use super::openapi as doc;

pub fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(end))
}

/// End all sessions of browsers
///
/// Replaces the key that signs them: on this node at once, on the others within a minute. Tokens stay valid.
#[utoipa::path(delete, path = "/v1/sessions", tag = "system", responses(
    (status = 204, description = "Ended"),
    doc::Refused,
))]
async fn end(State(state): State<AppState>, _: NoParams) -> ApiResult<StatusCode> {
    state.sessions.replace_key(&**state.coordinator.store()).await?;
    Ok(StatusCode::NO_CONTENT)
}
