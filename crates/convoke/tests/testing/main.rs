//! The test server in the process of a test: its time, its workers, its faults.

mod faults;
mod inline;
mod remote;
mod repeated;
mod time;

use std::sync::Arc;
use std::time::Duration;

use convoke::testing::Server;
use convoke::{Context, Job, JobView};
use jiff::Timestamp;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

const HOUR: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(86_400);

/// A job whose handler records when it ran.
#[derive(Debug, Serialize, Deserialize)]
struct Note(String);

impl Job for Note {
    const TYPE: &'static str = "note";
    type Output = ();
}

/// The runs, with their virtual times.
#[derive(Clone, Default)]
struct Runs(Arc<Mutex<Vec<(String, Timestamp)>>>);

impl Runs {
    fn add(&self, what: impl Into<String>, at: Timestamp) {
        self.0.lock().push((what.into(), at));
    }

    fn all(&self) -> Vec<(String, Timestamp)> {
        self.0.lock().clone()
    }

    fn count(&self) -> usize {
        self.0.lock().len()
    }
}

async fn server() -> Arc<Server> {
    Arc::new(Server::start().await.expect("it starts"))
}

/// Runs a worker whose handlers record what they were given.
async fn recording(server: &Arc<Server>, runs: &Runs) -> convoke::testing::WorkerGuard {
    let (clock, runs) = (Arc::downgrade(server), runs.clone());
    let working = server.work(|worker| {
        worker.queues(["default"]).handle(move |_: Context, Note(what): Note| {
            let (clock, runs) = (clock.clone(), runs.clone());
            async move {
                runs.add(what, clock.upgrade().ok_or("the server is gone")?.now());
                Ok::<_, &str>(())
            }
        })
    });
    working.await.expect("it registers")
}

fn start() -> Timestamp {
    "2030-01-01T00:00:00Z".parse().expect("a time")
}

fn note(what: &str) -> Note {
    Note(what.into())
}

async fn job(server: &Server, id: convoke::JobId) -> JobView {
    server.client().job(id).await.expect("it exists")
}
