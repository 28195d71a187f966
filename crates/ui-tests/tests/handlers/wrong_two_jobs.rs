use convoke::{Job, Worker};
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

async fn add(one: Add, other: Add) -> convoke::Result<i64> {
    Ok(one.a + other.b)
}

fn main() {
    let _ = |worker: Worker| worker.handle(add);
}
