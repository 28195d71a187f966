//! The routes of pages, and the list of their forms: a test sends each form with every role, so none can be forgotten.

use axum::Router;
use axum::handler::Handler;
use axum::routing::{get, post};

use crate::AppState;

/// Pages, which are read, and forms, which change something. There is no third way to add a route.
pub struct PageRoutes {
    router: Router<AppState>,
    forms: Vec<&'static str>,
}

impl PageRoutes {
    pub fn new() -> Self {
        PageRoutes { router: Router::new(), forms: Vec::new() }
    }

    /// Adds a page.
    pub fn page<H: Handler<T, AppState>, T: 'static>(mut self, path: &'static str, handler: H) -> Self {
        self.router = self.router.route(path, get(handler));
        self
    }

    /// Adds the handler of a form.
    pub fn form<H: Handler<T, AppState>, T: 'static>(mut self, path: &'static str, handler: H) -> Self {
        self.router = self.router.route(path, post(handler));
        self.forms.push(path);
        self
    }

    pub fn merge(mut self, other: PageRoutes) -> Self {
        self.router = self.router.merge(other.router);
        self.forms.extend(other.forms);
        self
    }

    pub fn into_router(self) -> Router<AppState> {
        self.router
    }

    /// Returns the paths of all forms.
    #[cfg(test)]
    pub fn forms(&self) -> &[&'static str] {
        &self.forms
    }
}
