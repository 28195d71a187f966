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

async fn add(cx: Context, job: Add) -> convoke::Result<i64> {
    let shared = std::rc::Rc::new(job);
    cx.log("adds").await?;
    Ok(shared.a + shared.b)
}

fn main() {
    let _ = |worker: Worker| worker.handle(add);
}
