//! One page at `/` that shows what runs, with links.
//!
//! It loads nothing from elsewhere and has no script. On a server with tokens it shows what runs only to requests that
//! may read, and to all others only the link to the documentation.

use axum::extract::{Request, State};
use axum::response::Html;
use axum::{Router, routing};

use crate::AppState;
use crate::mount::Prefix;

const PAGE: &str = include_str!("page.html");

pub fn routes() -> Router<AppState> {
    Router::new().route("/", routing::get(page))
}

async fn page(State(state): State<AppState>, request: Request) -> Html<String> {
    let rows = if state.access.may_read(request.headers(), request.extensions()) {
        what_runs(&state)
    } else {
        vec![("what runs", "shown to requests with a token (Authorization: Bearer …)".into())]
    };
    let prefix = escape(Prefix::of(request.extensions()));
    let rows: String = rows.iter().map(|(name, value)| row(name, value)).collect();
    let page = PAGE.replace("{{prefix}}", &prefix);
    Html(page.replace("{{version}}", &escape(&state.info.version)).replace("{{rows}}", &rows))
}

fn what_runs(state: &AppState) -> Vec<(&'static str, String)> {
    let leadership = state.coordinator.cluster();
    let leader = match (&leadership.leader, leadership.is_me) {
        (Some(leader), true) => format!("{leader} (this node)"),
        (Some(leader), false) => leader.to_string(),
        (None, _) => "none yet".into(),
    };
    let ready = state.coordinator.unready().unwrap_or("ready");
    vec![
        ("node", state.coordinator.node_id().to_string()),
        ("state", ready.into()),
        ("leader", leader),
        ("epoch", leadership.epoch.to_string()),
        ("store", state.info.store.clone()),
        ("bus", state.info.bus.clone()),
        ("leases", state.info.leases.clone()),
    ]
}

fn row(name: &str, value: &str) -> String {
    format!("<tr><th scope=\"row\">{}</th><td>{}</td></tr>\n", escape(name), escape(value))
}

/// Names are free text, which may contain HTML.
fn escape(text: &str) -> String {
    text.chars().fold(String::with_capacity(text.len()), |mut escaped, c| {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            c => escaped.push(c),
        }
        escaped
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_become_markup() {
        assert_eq!(
            row("node", r#"<b a="1">&'"#),
            "<tr><th scope=\"row\">node</th><td>&lt;b a=&quot;1&quot;&gt;&amp;&#39;</td></tr>\n"
        );
    }
}
