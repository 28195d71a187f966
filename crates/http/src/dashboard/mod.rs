//! The dashboard: pages for people, rendered on the server from the functions that `/v1` calls.
//!
//! A page is one handler (`pages`) and one template in `templates/`, checked when the crate is compiled. It reads nothing
//! that the API does not read, and its forms call the functions that the API's handlers call. Every page can be
//! read and used without a script. The scripts of `assets/` add what moves: they fetch the page again if something
//! happened and replace the parts that differ.
//!
//! All responses forbid inline scripts and styles, foreign origins and frames ([`layout::secure`]). An error becomes
//! a page with the API's message ([`frame_pages`]). Paths are written without the prefix under which the server is
//! reached: templates add [`layout::Page::prefix`], redirects get it when they are sent.

mod assets;
mod charts;
mod fields;
mod filter;
mod form;
mod json;
mod lanes;
mod layout;
mod pages;
mod routes;
mod settings;
pub(crate) mod text;
mod verdict;

use axum::extract::{Request, State};
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::{Router, routing};

use http::header::ACCEPT;
use http::request::Parts;

use crate::AppState;
use crate::access::Area;
use crate::error::ApiError;
use routes::PageRoutes;

pub use settings::{Color, DashboardSettings};

/// Returns the pages and their assets; nothing if the dashboard is switched off.
pub fn routes(state: &AppState) -> Router<AppState> {
    if !state.site.dashboard.enabled {
        return Router::new();
    }
    all()
        .into_router()
        .layer(middleware::from_fn_with_state(state.clone(), frame_pages))
        .route("/assets/{hash}/{name}", routing::get(assets::serve))
}

/// Returns every page and form.
fn all() -> PageRoutes {
    PageRoutes::new()
        .merge(pages::overview::routes())
        .merge(pages::cluster::routes())
        .merge(pages::shards::routes())
        .merge(pages::mesh::routes())
        .merge(pages::elections::routes())
        .merge(pages::activity::routes())
        .merge(pages::login::routes())
        .merge(pages::jobs::routes())
        .merge(pages::job::routes())
        .merge(pages::bulk::routes())
        .merge(pages::new_job::routes())
        .merge(pages::dead_letters::routes())
        .merge(pages::schedules::routes())
        .merge(pages::edit_schedule::routes())
        .merge(pages::queues::routes())
        .merge(pages::workers::routes())
}

/// Returns the paths of all forms.
#[cfg(test)]
pub fn forms() -> Vec<&'static str> {
    all().forms().to_vec()
}

/// Returns the bytes of all scripts, compressed.
#[cfg(test)]
pub fn scripts_bytes() -> usize {
    assets::ASSETS.iter().filter(|asset| asset.name.ends_with(".js")).map(|asset| asset.gzip.len()).sum()
}

/// Passes the frame to the handler, and makes a page of an error.
async fn frame_pages(State(state): State<AppState>, request: Request, next: Next) -> Response {
    let (mut parts, body) = request.into_parts();
    let frame = layout::Frame::of(&state, &parts);
    parts.extensions.insert(frame.clone());
    let mut response = next.run(Request::from_parts(parts, body)).await;
    if let Some(error) = response.extensions_mut().remove::<ApiError>() {
        response = pages::error::page(&frame, &error);
        response.extensions_mut().insert(error);
    }
    layout::secure(&mut response);
    response
}

/// Returns the head of a browser's request for a page, without which a rejection could not be shown as one.
pub fn head_of_page(state: &AppState, request: &Request) -> Option<Parts> {
    let is_browser = request.headers().get(ACCEPT).is_some_and(|kinds| kinds.as_bytes().starts_with(b"text/html"));
    let is_page = is_browser && state.site.dashboard.enabled && Area::of(request.uri().path()) == Area::Page;
    is_page.then(|| {
        let mut head = Request::new(()).into_parts().0;
        (head.uri, head.extensions) = (request.uri().clone(), request.extensions().clone());
        head
    })
}

/// Returns the response to a request that was not admitted: for a page, the error as a page.
pub fn page_of_refusal(state: &AppState, head: Option<Parts>, mut refused: Response) -> Response {
    let Some(head) = head else { return refused };
    if let Some(error) = refused.extensions_mut().remove::<ApiError>() {
        refused = pages::error::page(&layout::Frame::of(state, &head), &error);
    }
    layout::secure(&mut refused);
    refused
}
