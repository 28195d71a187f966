//! What happens to a job whose stored definition or arguments cannot be read. For stores whose rows a test can change by hand.

use convoke_core::JobId;
use convoke_core::jobs::{Outcome, Status};
use convoke_core::ports::Store;

use super::stage::*;

/// A column of a job that holds text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Column {
    Document,
    Args,
}

/// Lists show what can be read, the dispatch of the queue goes on, and only the run of the job itself fails. `write` replaces the text of
/// a column.
pub async fn a_job_that_cannot_be_read_fails_alone(
    store: &dyn Store,
    write: impl AsyncFn(JobId, Column, &'static str),
) {
    let stage = Stage::new(store).await;
    stage.enqueue((1..=5).map(job)).await;
    write(job_id(2), Column::Document, r#"{"v":1,"type":"t","queue":"q","priority":"urgent","maxRetries":7}"#).await;
    write(job_id(3), Column::Args, "{").await;
    write(job_id(4), Column::Document, "nothing").await;
    let listed = stage.all().await.into_iter().filter(|job| job.status == Status::Pending);
    assert_eq!(listed.count(), 5, "all are listed");
    let shown = stage.job(job_id(2)).await.definition;
    assert_eq!((shown.job_type.as_str(), shown.queue, shown.max_retries), ("t", queue("q"), 7), "what can be read");
    assert!(stage.job(job_id(3)).await.definition.args.is_null());

    let result = store.dispatch(stage.fence, stage.order("q", 9, at(1))).await.expect("the queue is dispatched");
    assert_eq!(result.runs.iter().map(|run| run.job_id).collect::<Vec<_>>(), (1..=5).map(job_id).collect::<Vec<_>>());
    let unreadable: Vec<_> = result.unreadable.iter().map(|run| (run.job, run.error.as_str())).collect();
    let parts = ["urgent", "arguments", "definition"];
    assert_eq!(unreadable.iter().map(|(job, _)| *job).collect::<Vec<_>>(), [2, 3, 4].map(job_id), "{unreadable:?}");
    assert!(unreadable.iter().zip(parts).all(|((_, error), part)| error.contains(part)), "{unreadable:?}");

    for run in &result.runs {
        let reason = result.unreadable.iter().find(|unreadable| unreadable.execution == run.execution_id);
        match reason {
            Some(unreadable) => {
                let outcome = Outcome::Failed { error: unreadable.error.clone(), retry: false };
                stage.end_as_leader(report(run).ended(at(2), outcome, 0.5)).await;
            }
            None => drop(stage.end(run, at(2), completed()).await),
        }
    }
    let ends = async |n| stage.job(job_id(n)).await.status;
    for (n, status) in (1..).zip([Status::Completed, Status::Failed, Status::Failed, Status::Failed, Status::Completed])
    {
        assert_eq!(ends(n).await, status, "{n}");
    }
    assert!(stage.job(job_id(2)).await.error.is_some_and(|error| error.contains("urgent")));
}
