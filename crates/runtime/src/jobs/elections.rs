//! The elections on the leases of this node: its own, and those of applications that share the backend.

use convoke_core::election::Report;
use convoke_core::ports::leases::Lease;
use convoke_core::{Error, Result};
use std::time::Duration;

use super::coordinator::Coordinator;
use super::settings::NAMESPACE;

/// Namespaces that are listed at most.
const NAMESPACES_MAX: usize = 100;
/// How long a view waits for the leases.
const PATIENCE: Duration = Duration::from_secs(2);

/// A namespace as it was read.
#[derive(Debug, Clone, PartialEq)]
pub struct ElectionView {
    /// The namespace.
    pub namespace: String,
    /// The present term; `None` during a vacancy.
    pub lease: Option<Lease>,
    /// The ids of the present members. The nodes of this cluster do not enrol.
    pub members: Vec<String>,
    /// The figures of the present leader, if the backend carries them.
    pub report: Option<Report>,
}

impl Coordinator {
    /// Returns the namespaces of the leases; `None` if the backend cannot list them. The nodes' own is among them.
    pub async fn election_namespaces(&self) -> Result<Option<Vec<String>>> {
        let listed = in_time(self.node().ports.leases.namespaces(NAMESPACES_MAX)).await?;
        Ok(listed.map(|mut names| {
            if !names.iter().any(|name| name == NAMESPACE) {
                names.insert(0, NAMESPACE.to_owned());
            }
            names
        }))
    }

    /// Reads a namespace, without taking part in its election.
    pub async fn election_view(&self, namespace: &str) -> Result<ElectionView> {
        convoke_core::ids::check_name("namespace", namespace)?;
        let leases = &self.node().ports.leases;
        in_time(async {
            let lease = leases.read(namespace).await?;
            let members = leases.roster(namespace).await?;
            let published = leases.published(namespace).await?;
            // A report that cannot be read is from another version.
            let report = published.and_then(|text| serde_json::from_str::<Report>(&text).ok());
            let is_present = |report: &Report| {
                lease.as_ref().is_some_and(|it| it.holder == report.member && it.epoch == report.epoch)
            };
            Ok(ElectionView { namespace: namespace.to_owned(), report: report.filter(is_present), lease, members })
        })
        .await
    }
}

async fn in_time<T>(read: impl Future<Output = Result<T>>) -> Result<T> {
    let silent = || Error::unavailable("leases", format!("no response within {PATIENCE:?}"));
    tokio::time::timeout(PATIENCE, read).await.unwrap_or_else(|_| Err(silent()))
}
