//! The page of an error: the API's message, with the way back.

use askama::Template;
use axum::response::{IntoResponse, Response};

use crate::dashboard::layout::{self, Frame, OVERVIEW, Page};
use crate::error::ApiError;

#[derive(Template)]
#[template(path = "error.html")]
struct ErrorTemplate<'a> {
    page: Page,
    error: &'a ApiError,
    reason: &'a str,
}

/// Returns the page of an error, with its status.
pub fn page(frame: &Frame, error: &ApiError) -> Response {
    let reason = error.status.canonical_reason().unwrap_or("Error");
    let template = ErrorTemplate { page: frame.page(OVERVIEW, reason).at_rest(), error, reason };
    layout::render_with(error.status, &template).unwrap_or_else(IntoResponse::into_response)
}
