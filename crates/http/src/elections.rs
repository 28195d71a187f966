//! The elections on the leases of this node.

use std::time::Duration;

use axum::extract::State;
use convoke_core::Epoch;
use convoke_core::NodeId;
use convoke_core::election::{BreakerStatus, Metrics};
use convoke_core::history::TermRecord;
use convoke_runtime::jobs::{ElectionView, NAMESPACE};
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::AppState;
use super::body::{self, NoParams, Segment};
use super::error::ApiResult;
use super::openapi as doc;

/// Terms of the nodes' own election that are shown with it.
const TERMS_SHOWN: usize = 20;

pub fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(list)).routes(routes!(show))
}

/// The namespaces of the leases.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Namespaces {
    /// The node that responds.
    pub answered_by: NodeId,
    /// The address of the leases.
    pub leases: String,
    /// In order, at most 100; null if the backend cannot list them (Redis and S3): ask for one by its name.
    pub namespaces: Option<Vec<String>>,
}

/// The namespaces of the node's leases
///
/// The nodes' own election has the namespace `coordinator`. Others are those of `convoke elect` and of electors that use
/// the same backend.
#[utoipa::path(get, path = "/v1/elections", tag = "cluster", responses((status = 200, body = Namespaces), doc::Refused))]
async fn list(State(state): State<AppState>, _: NoParams) -> ApiResult {
    Ok(body::ok(&read_namespaces(&state).await?))
}

/// Returns the namespaces of the leases.
pub(crate) async fn read_namespaces(state: &AppState) -> ApiResult<Namespaces> {
    Ok(Namespaces {
        answered_by: state.coordinator.node_id().clone(),
        leases: state.info.leases.clone(),
        namespaces: state.coordinator.election_namespaces().await?,
    })
}

/// An election.
#[derive(Serialize, ToSchema)]
#[schema(as = NamespaceElection)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Namespace {
    pub namespace: String,
    /// The member that leads; null during a vacancy.
    pub holder: Option<String>,
    /// The number of its term.
    pub epoch: Option<Epoch>,
    /// The time until the lease expires, by the backend's clock.
    #[schema(value_type = Option<String>, example = "8s")]
    #[serde(with = "convoke_core::duration::option")]
    pub remaining: Option<Duration>,
    /// The present members, in order. Nodes of a cluster do not enrol: `GET /v1/cluster` has them.
    pub members: Vec<String>,
    /// The figures of the present leader; null if the backend does not carry them.
    pub metrics: Option<Metrics>,
    /// The circuit breaker of the present leader.
    pub breaker: Option<BreakerStatus>,
    /// The last terms, the newest first; empty for namespaces of applications, of which no node keeps them.
    pub terms: Vec<TermRecord>,
}

/// One election: holder, epoch, members and figures
///
/// It is read as any member reads it. A namespace that nobody uses has no holder and no members.
#[utoipa::path(get, path = "/v1/elections/{namespace}", tag = "cluster", params(doc::NamespacePath),
    responses((status = 200, body = Namespace), doc::Refused))]
async fn show(State(state): State<AppState>, Segment(name): Segment<NamespaceName>, _: NoParams) -> ApiResult {
    Ok(body::ok(&read_namespace(&state, &name.0).await?))
}

/// Reads an election.
pub(crate) async fn read_namespace(state: &AppState, name: &str) -> ApiResult<Namespace> {
    let ElectionView { namespace, lease, members, report } = state.coordinator.election_view(name).await?;
    let mut terms = if name == NAMESPACE { state.coordinator.terms().records } else { Vec::new() };
    terms.truncate(TERMS_SHOWN);
    // The nodes' own leader publishes no report: this node's figures are those of the nodes' election.
    let own = state.coordinator.election().filter(|_| name == NAMESPACE);
    let (metrics, breaker) = match (report, own) {
        (Some(report), _) => (Some(report.metrics), Some(report.breaker)),
        (None, Some((metrics, breaker))) => (Some(metrics), Some(breaker)),
        (None, None) => (None, None),
    };
    Ok(Namespace {
        namespace,
        holder: lease.as_ref().map(|lease| lease.holder.clone()),
        epoch: lease.as_ref().map(|lease| lease.epoch),
        remaining: lease.as_ref().map(|lease| Duration::from_millis(lease.remaining.as_millis() as u64)),
        members,
        metrics,
        breaker,
        terms,
    })
}

/// The name of a namespace.
struct NamespaceName(String);

impl std::str::FromStr for NamespaceName {
    type Err = convoke_core::Invalid;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        convoke_core::ids::check_name("namespace", text)?;
        Ok(NamespaceName(text.to_owned()))
    }
}
