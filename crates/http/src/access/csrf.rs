//! Tokens of forms: a request that a browser sends by itself, because it has a cookie or the machine's address, is
//! accepted only if it carries a text that a page of another site cannot read.

use axum::body::Body;
use axum::extract::Request;
use bytes::Bytes;
use http::HeaderMap;
use subtle::ConstantTimeEq;

use crate::body;
use crate::error::{ApiError, ApiResult};

/// The field of a form.
pub const CSRF_FIELD: &str = "csrf";
/// The header of a request that a script of a page sends.
const CSRF_HEADER: &str = "x-csrf-token";
/// Room for arguments of the largest size in a form, in which most bytes may take three.
const FORM_BYTES_MAX: usize = 4 << 20;

/// The text that the forms of a page carry.
#[derive(Debug, Clone)]
pub struct CsrfToken(pub String);

impl CsrfToken {
    /// Rejects a request that does not carry the token: in the header, or in the form if the request is one.
    pub async fn check(&self, request: Request, is_form: bool) -> ApiResult<Request> {
        if let Some(sent) = in_header(request.headers()) {
            self.compare(Some(sent))?;
            return Ok(request);
        }
        if !is_form {
            self.compare(None)?;
        }
        let (parts, sent) = request.into_parts();
        let form = body::read(Request::from_parts(parts.clone(), sent), FORM_BYTES_MAX).await?;
        self.compare(in_form(&form).as_deref())?;
        Ok(Request::from_parts(parts, Body::from(form)))
    }

    fn compare(&self, sent: Option<&str>) -> ApiResult<()> {
        if sent.is_some_and(|sent| bool::from(sent.as_bytes().ct_eq(self.0.as_bytes()))) {
            return Ok(());
        }
        let message = "the request does not carry the token of a page of this session (field csrf, or header \
                       X-Csrf-Token): open the page again, then send it";
        Err(ApiError::forbidden(message).on(CSRF_FIELD))
    }
}

fn in_header(headers: &HeaderMap) -> Option<&str> {
    headers.get(CSRF_HEADER).map(|value| value.to_str().unwrap_or_default())
}

fn in_form(form: &Bytes) -> Option<String> {
    form_urlencoded::parse(form).find(|(name, _)| name == CSRF_FIELD).map(|(_, value)| value.into_owned())
}
