//! The one place that admits a request.
//!
//! | request | identity | token of forms |
//! | --- | --- | --- |
//! | any, with `Authorization` | the token | not needed: no browser sends it by itself |
//! | a page, a form, a `GET` of `/v1`, with the cookie of a session | the session | for everything but reads |
//! | another request to `/v1` with a cookie | the session | needed, in a header |
//! | the worker gateway with a cookie | rejected | |
//! | any, on a server without tokens | `local` or `anonymous` | for forms of pages |
//! | a page without identity | redirected to the login page | |

use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use http::header::{HeaderValue, LOCATION};
use http::{Method, StatusCode};

use super::csrf::CsrfToken;
use super::foreign::refuse_foreign_forms;
use super::role::{Area, is_read};
use super::session::{self, SessionId};
use super::{Access, Caller, Identity, no_token};
use crate::AppState;
use crate::error::{ApiError, ApiResult};

/// Puts the [`Caller`] into the request, and for pages the [`CsrfToken`] of their forms. Returns the response of a
/// request that is not admitted.
pub async fn admit(state: &AppState, mut request: Request) -> Result<Request, Response> {
    let needed = state.access.needed(&request);
    let (area, reads) = (Area::of(request.uri().path()), is_read(request.method()));
    let is_public = state.access.public.opens(request.method(), request.uri().path());
    // The request itself cannot be borrowed while the key of sessions is read.
    let (by_token, cookie) = (state.access.identify(&request), session::cookie(request.headers()).map(str::to_owned));
    let (caller, session) = match (identify(state, by_token, cookie).await, needed) {
        (Ok((Some(caller), session)), Some(needed)) => {
            if area == Area::Gateway && caller.identity == Identity::Session {
                return Err(ApiError::forbidden("workers need a token, not a session").into_response());
            }
            caller.check(needed).map_err(IntoResponse::into_response)?;
            (caller, session)
        }
        (Ok((Some(caller), session)), None) => (caller, session),
        (Ok((None, _)), None) => return Ok(request),
        (Ok((None, _)), Some(_)) => return Err(without_identity(state, &request, area)),
        // A path that is open to all shows its details only to callers that may read.
        (Err(_), None) if is_public || matches!(state.access.access, Access::Tokens(_)) => return Ok(request),
        (Err(refused), _) => return Err(refused.into_response()),
    };
    let is_page = area == Area::Page;
    let is_browser = match caller.identity {
        Identity::Token => false,
        Identity::Session => true,
        Identity::Open => is_page,
    };
    request.extensions_mut().insert(caller);
    if is_browser && (is_page || !reads) && needed.is_some() {
        request = with_csrf(state, request, session.as_ref(), is_page).await.map_err(IntoResponse::into_response)?;
    }
    Ok(request)
}

/// Returns who sends a request, and the session that it has.
async fn identify(
    state: &AppState,
    by_token: ApiResult<Option<Caller>>,
    cookie: Option<String>,
) -> ApiResult<(Option<Caller>, Option<SessionId>)> {
    let caller = by_token?;
    // A token takes precedence over a cookie.
    let (None, Some(cookie), Access::Tokens(tokens)) = (&caller, cookie, &state.access.access) else {
        return Ok((caller, None));
    };
    let Some(key) = state.sessions.key(&**state.coordinator.store()).await? else { return Ok((None, None)) };
    let verified = key.verify(&cookie, tokens, state.coordinator.clock().now());
    Ok(verified.map_or((None, None), |(token, id)| (Some(Caller::of_token(token, Identity::Session)), Some(id))))
}

/// Checks the token of forms if the request changes something, and adds it for the forms of the page that is returned.
async fn with_csrf(
    state: &AppState,
    mut request: Request,
    session: Option<&SessionId>,
    is_page: bool,
) -> ApiResult<Request> {
    let reads = is_read(request.method());
    let key = match state.sessions.key_or_new(&**state.coordinator.store()).await {
        Ok(key) => key,
        // While the store is away a page can be read, but none of its forms sent.
        Err(_) if reads => return Ok(request),
        Err(error) => return Err(error.into()),
    };
    let token = CsrfToken(key.csrf(session));
    if !reads {
        refuse_foreign_forms(request.headers())?;
        request = token.check(request, is_page).await?;
    }
    request.extensions_mut().insert(token);
    Ok(request)
}

/// Returns the response to a request that needs an identity and has none: a browser is sent to the login page.
fn without_identity(state: &AppState, request: &Request, area: Area) -> Response {
    let has_login = state.site.dashboard.enabled;
    if !has_login || area != Area::Page || !matches!(*request.method(), Method::GET | Method::HEAD) {
        return no_token().into_response();
    }
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
    let next: String = form_urlencoded::byte_serialize(path.as_bytes()).collect();
    let location = if path == "/" { "/login".to_owned() } else { format!("/login?next={next}") };
    let location = HeaderValue::try_from(location).unwrap_or(HeaderValue::from_static("/login"));
    (StatusCode::SEE_OTHER, [(LOCATION, location)]).into_response()
}
