//! B1: a finished job's channels are closed, and none leaks. To be asked once everything has ended and been cleaned.

use uuid::Uuid;

use super::Broken;

/// `keys` is all that the bus holds.
pub fn check<'a>(prefix: &str, keys: impl IntoIterator<Item = &'a str>) -> Vec<Broken> {
    let left = keys.into_iter().filter(|key| is_a_jobs(prefix, key));
    left.map(|key| Broken { invariant: "B1", what: format!("{key} was left behind") }).collect()
}

/// `{prefix}.job.{jobId}.*`, whatever the last part. The cluster's own channels have no id in that place.
fn is_a_jobs(prefix: &str, key: &str) -> bool {
    let rest = key.strip_prefix(prefix).and_then(|rest| rest.strip_prefix(".job."));
    let id = rest.and_then(|rest| rest.split('.').next());
    id.is_some_and(|id| Uuid::try_parse(id).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "0198c0de-0000-7000-8000-000000000001";

    #[test]
    fn holds_where_only_the_clusters_own_channels_are_left() {
        let keys = ["p.job.assigned", "p.job.handoff", "p.job.dispatch.email", "p.job.enqueue", "p.poison", "p:leader"];
        assert_eq!(check("p", keys), []);
        assert_eq!(check("p", [format!("other.job.{ID}.status").as_str()]), [], "that is another cluster's");
    }

    #[test]
    fn a_channel_of_a_job_is_found_whatever_its_kind() {
        for kind in ["status", "logs", "something"] {
            assert_eq!(check("p", [format!("p.job.{ID}.{kind}").as_str()]).len(), 1, "{kind}");
        }
    }
}
