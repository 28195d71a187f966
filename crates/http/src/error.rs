//! The one form of every error response: `{"error":{"code","message","field"}}`.
//!
//! Every failure of a request becomes an [`ApiError`]: an invalid body, an unknown route, an unavailable store. The
//! status shows who must act (4xx: the client; 503: the server, try again), the code is for programs, the message for
//! people, the field for forms.

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use convoke_core::Error;
use convoke_core::error::{Invalid, InvalidKind};
use http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderValue, StatusCode};
use serde::Serialize;
use utoipa::ToSchema;

pub type ApiResult<T = Response> = Result<T, ApiError>;

#[derive(Debug, Clone, PartialEq)]
pub struct ApiError {
    pub status: StatusCode,
    pub code: &'static str,
    pub message: String,
    pub field: Option<String>,
}

impl ApiError {
    pub fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        ApiError { status, code, message: message.into(), field: None }
    }

    pub fn on(mut self, field: impl Into<String>) -> Self {
        self.field = Some(field.into());
        self
    }

    /// The value is not accepted for the field.
    pub fn invalid(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid_argument", message).on(field)
    }

    pub fn too_large(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", message).on(field)
    }

    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found", message)
    }

    pub fn forbidden(message: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, "forbidden", message)
    }

    pub fn unauthorized(message: impl Into<String>) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "unauthorized", message)
    }

    pub fn too_many(message: impl Into<String>) -> Self {
        Self::new(StatusCode::TOO_MANY_REQUESTS, "too_many_requests", message)
    }
}

impl From<Invalid> for ApiError {
    fn from(invalid: Invalid) -> Self {
        let (status, code) = match invalid.kind {
            InvalidKind::Argument => (StatusCode::BAD_REQUEST, "invalid_argument"),
            InvalidKind::Unprocessable => (StatusCode::UNPROCESSABLE_ENTITY, "unprocessable"),
            InvalidKind::TooLarge => (StatusCode::PAYLOAD_TOO_LARGE, "too_large"),
        };
        ApiError::new(status, code, invalid.message).on(invalid.field)
    }
}

impl From<Error> for ApiError {
    fn from(error: Error) -> Self {
        let message = error.to_string();
        match error {
            Error::Invalid(invalid) => invalid.into(),
            Error::NotFound { what: "worker", .. } => {
                ApiError::new(StatusCode::NOT_FOUND, "unknown_worker", format!("{message}: register it again"))
            }
            Error::NotFound { .. } => ApiError::not_found(message),
            Error::Conflict(_) => ApiError::new(StatusCode::CONFLICT, "conflict", message),
            Error::Fenced { .. } => ApiError::new(StatusCode::CONFLICT, "fenced", message),
            Error::Unavailable { .. } => {
                // The outage of a store or bus is logged once when it is detected, not once per request.
                tracing::debug!(error = message, "request failed");
                ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", message)
            }
            // `Unknown`, and the most careful response for a kind that is added later.
            _ => {
                tracing::debug!(error = message, "request failed; its outcome is unknown");
                ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "unknown_outcome", message)
            }
        }
    }
}

/// The body of every response that is an error.
#[derive(Serialize, ToSchema)]
pub struct ErrorBody<'a> {
    error: Refusal<'a>,
}

/// The reason of a rejection.
#[derive(Serialize, ToSchema)]
struct Refusal<'a> {
    /// For programs.
    #[schema(example = "invalid_argument")]
    code: &'a str,
    /// For people.
    message: &'a str,
    /// The path of the field that was rejected; null if the error is not about a field.
    #[schema(example = "jobs[3].delay", required)]
    field: Option<&'a str>,
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let error = Refusal { code: self.code, message: &self.message, field: self.field.as_deref() };
        let text = serde_json::to_vec(&ErrorBody { error }).expect("strings always serialise");
        let mut response = Response::new(Body::from(text));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        match self.status {
            StatusCode::UNAUTHORIZED => {
                headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS => {
                headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
            }
            _ => {}
        }
        // The dashboard makes a page of it.
        response.extensions_mut().insert(self);
        response
    }
}
