use convoke::{Context, Job, Worker};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Add {
    a: i64,
    b: i64,
}

impl Job for Add {
    const TYPE: &'static str = "math.add";
    type Output = i64;
}

async fn add(_: Context, job: Add) -> convoke::Result<String> {
    Ok((job.a + job.b).to_string())
}

fn main() {
    let _ = |worker: Worker| worker.handle(add);
}
