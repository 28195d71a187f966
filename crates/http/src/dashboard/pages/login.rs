//! The login page: it exchanges a token for the cookie of a session.

use askama::Template;
use axum::extract::{Request, State};
use axum::response::{IntoResponse as _, Response};
use convoke_core::audit::AuditVia;
use http::header::{ORIGIN, REFRESH, SET_COOKIE};
use http::{HeaderMap, HeaderValue, StatusCode};

use crate::access::{Access, COOKIE_NAME, Caller, Identity, Peer, Role, refuse_foreign_forms};
use crate::body::{Params, SMALL_BYTES_MAX};
use crate::dashboard::form::Form;
use crate::dashboard::layout::{self, Frame, OVERVIEW, Page};
use crate::dashboard::routes::PageRoutes;
use crate::error::{ApiError, ApiResult};
use crate::{AppState, audit};

/// Upper bound of the path to which a login leads.
const NEXT_BYTES_MAX: usize = 2_048;

pub fn routes() -> PageRoutes {
    PageRoutes::new().page("/login", show).form("/login", login).form("/logout", logout)
}

#[derive(Template)]
#[template(path = "login.html")]
struct LoginTemplate {
    page: Page,
    /// The page that is shown after the login.
    next: String,
    problem: Option<&'static str>,
}

fn form(frame: &Frame, status: StatusCode, next: String, problem: Option<&'static str>) -> ApiResult {
    let template = LoginTemplate { page: frame.page(OVERVIEW, "Log in").at_rest(), next, problem };
    layout::render_with(status, &template)
}

async fn show(State(state): State<AppState>, frame: Frame, request: Request) -> ApiResult {
    let next = next_of(Params::of(request.uri())?.text("next").ok().flatten().as_deref());
    // On a server without tokens, and with a session, there is nothing to do.
    if frame.may_read || !matches!(state.access.access, Access::Tokens(_)) {
        return layout::see_other(&next);
    }
    let mut response = form(&frame, StatusCode::OK, next.clone(), None)?;
    // A browser that follows a link of another site sends no strict cookie. The page it is on now is ours: from here it
    // sends the cookie, if it has one.
    if request.headers().get("sec-fetch-site").is_some_and(|site| site == "cross-site")
        && let Ok(refresh) = HeaderValue::try_from(format!("0; url={}{next}", frame.prefix))
    {
        response.headers_mut().insert(REFRESH, refresh);
    }
    Ok(response)
}

async fn login(State(state): State<AppState>, frame: Frame, request: Request) -> ApiResult {
    refuse_foreign_forms(request.headers())?;
    let address = request.extensions().get::<Peer>().map(|peer| peer.0);
    let is_secure = is_secure(request.headers());
    let sent = Form::read(request, SMALL_BYTES_MAX).await?;
    let next = next_of(sent.get("next"));
    let Access::Tokens(tokens) = &state.access.access else { return layout::see_other(&next) };
    state.sessions.logins.check(address)?;
    let Some(token) = tokens.find(sent.get("token").unwrap_or_default().as_bytes()) else {
        state.sessions.logins.count_failure(address);
        tracing::warn!(address = address.map(tracing::field::display), "login failed: unknown token");
        return form(&frame, StatusCode::UNAUTHORIZED, next, Some("This token is not one of the configuration."));
    };
    if !token.role.may(Role::Read) {
        let problem = "A token of the role worker cannot read: use one of the role read, enqueue or admin.";
        return form(&frame, StatusCode::FORBIDDEN, next, Some(problem));
    }
    let key = state.sessions.key_or_new(&**state.coordinator.store()).await?;
    let ttl = state.access.session_ttl;
    let value = key.issue(token, state.coordinator.clock().now() + ttl);
    let cookie = cookie(&frame.prefix, &value, ttl.as_secs(), is_secure)?;
    audit::record(&state, &Caller::of_token(token, Identity::Session), AuditVia::Dashboard, "login").await;
    with_cookie(layout::see_other(&next)?, cookie)
}

/// Ends the session of this browser: the cookie is removed.
async fn logout(State(_): State<AppState>, frame: Frame, request: Request) -> ApiResult {
    let cookie = cookie(&frame.prefix, "", 0, is_secure(request.headers()))?;
    with_cookie(layout::see_other("/login")?, cookie)
}

fn with_cookie(mut response: Response, cookie: HeaderValue) -> ApiResult {
    response.headers_mut().insert(SET_COOKIE, cookie);
    Ok(response.into_response())
}

/// Returns the header of a cookie that scripts cannot read and other sites cannot make a browser send.
fn cookie(prefix: &str, value: &str, seconds: u64, is_secure: bool) -> ApiResult<HeaderValue> {
    let path = if prefix.is_empty() { "/" } else { prefix };
    let secure = if is_secure { "; Secure" } else { "" };
    let text = format!("{COOKIE_NAME}={value}; Path={path}; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}");
    HeaderValue::try_from(text).map_err(|_| ApiError::invalid("path", "the prefix cannot be written into a cookie"))
}

/// Returns whether the browser uses TLS: it sent the form from a page with `https`, or a proxy states it. Both can only
/// add the attribute, so that a false statement harms only its sender.
fn is_secure(headers: &HeaderMap) -> bool {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let forwarded = text("x-forwarded-proto").split(',').next().unwrap_or_default().trim();
    text(ORIGIN.as_str()).starts_with("https://") || forwarded.eq_ignore_ascii_case("https")
}

/// Returns the path to which a login leads: one of this server, or the overview.
fn next_of(wanted: Option<&str>) -> String {
    // Browsers read `//host`, `/\host` and a path with control characters in it as the address of another server.
    let is_local = |path: &&str| {
        path.starts_with('/')
            && !path.starts_with("//")
            && path.len() <= NEXT_BYTES_MAX
            && path.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\')
            && !path.starts_with("/login")
            && !path.starts_with("/logout")
    };
    wanted.filter(is_local).unwrap_or("/").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_leads_to_a_page_of_this_server_only() {
        for good in ["/", "/jobs", "/jobs?q=status:failed", "/jobs/0198#logs", "/queues/a%2Fb"] {
            assert_eq!(next_of(Some(good)), good);
        }
        for bad in [
            "",
            "jobs",
            "//evil.example",
            "/\\evil.example",
            "\\\\evil",
            "https://evil.example",
            "javascript:alert(1)",
            "/\t/evil.example",
            "/\n/evil.example",
            "/a\\..\\b",
            "/ü",
            "/login?next=/",
            "/logout",
            " /jobs",
        ] {
            assert_eq!(next_of(Some(bad)), "/", "{bad:?}");
        }
        assert_eq!(next_of(Some(&format!("/{}", "x".repeat(NEXT_BYTES_MAX)))), "/");
        assert_eq!(next_of(None), "/");
    }

    #[test]
    fn a_cookie_is_secure_if_the_browser_uses_tls() {
        let headers = |name: &'static str, value: &'static str| {
            HeaderMap::from_iter([(name.parse().expect("a name"), HeaderValue::from_static(value))])
        };
        assert!(is_secure(&headers("origin", "https://jobs.example")));
        assert!(is_secure(&headers("x-forwarded-proto", "https, http")));
        assert!(!is_secure(&headers("x-forwarded-proto", "http, https")));
        assert!(!is_secure(&headers("origin", "http://jobs.example")) && !is_secure(&HeaderMap::new()));
    }
}
