//! `convoke elect … --http ADDR`: the HTTP endpoints of an elector.

use anyhow::Result;
use axum::response::Response;
use convoke::Elector;
use convoke_core::election::{BreakerState, Report};
use convoke_http::{recorder, response, serve_pages};
use http::StatusCode;
use jiff::Timestamp;
use metrics_exporter_prometheus::PrometheusHandle;
use serde_json::json;
use tokio_util::task::AbortOnDropHandle;

use crate::cli::output::line;
use crate::config::Config;
use crate::serve::GuardedListener;

/// The port of an elector. It is opened before the elector starts, because figures that are recorded before are lost.
pub struct Port {
    guarded: GuardedListener,
    metrics: PrometheusHandle,
}

impl Port {
    pub async fn open(bind: &str, config: Config) -> Result<Port> {
        let guarded = GuardedListener::bind("--http", bind.to_owned(), config).await?;
        Ok(Port { guarded, metrics: recorder::shared() })
    }

    /// Serves `/health`, `/metrics` and `/v1/election` until the handle is dropped.
    pub fn serve(self, elector: &Elector) -> Result<AbortOnDropHandle<()>> {
        let Port { guarded: GuardedListener { listener, access }, metrics } = self;
        line(format!("election at http://{}/v1/election", listener.local_addr()?))?;
        let elector = elector.clone();
        let page = move |path: &str| match path {
            "/health" => Some(health(&elector)),
            "/v1/election" => Some(election(&elector)),
            _ => None,
        };
        let serving = serve_pages(listener, access, metrics, page, std::future::pending());
        Ok(AbortOnDropHandle::new(tokio::spawn(serving)))
    }
}

/// Healthy unless the circuit breaker is open because the backend failed repeatedly.
fn health(elector: &Elector) -> Response {
    let is_healthy = elector.breaker().state != BreakerState::Open;
    let (status, word) =
        if is_healthy { (StatusCode::OK, "healthy") } else { (StatusCode::SERVICE_UNAVAILABLE, "unhealthy") };
    let checks = json!([{ "component": "Leases", "isHealthy": is_healthy }]);
    response::json(status, &json!({ "status": word, "checks": checks }), 128)
}

fn election(elector: &Elector) -> Response {
    let (metrics, breaker) = (elector.metrics(), elector.breaker());
    let report = Report { member: elector.id(), epoch: elector.epoch(), at: Timestamp::now(), metrics, breaker };
    let mut value = json!(report);
    value["namespace"] = json!(elector.namespace());
    value["isLeader"] = json!(elector.is_leader());
    value["isYielding"] = json!(elector.is_yielding());
    value["leader"] = json!(elector.leader());
    value["members"] = json!(elector.known_members());
    response::ok(&value)
}
