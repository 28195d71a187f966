//! Records metrics for `/metrics`. There is one recorder in a process; code that counts must start after it.

use std::sync::OnceLock;
use std::time::Duration;

use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle};

const SECONDS: [f64; 16] =
    [0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0, 600.0];
const IN_SECONDS: [&str; 5] = [
    "convoke_job_wait_seconds",
    "convoke_job_run_seconds",
    "convoke_store_seconds",
    "convoke_duty_seconds",
    "convoke_mesh_call_seconds",
];
const UPKEEP_INTERVAL: Duration = Duration::from_secs(5);
const SIZES: [f64; 9] = [1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1_000.0, 3_000.0, 10_000.0];

/// Returns the process's recorder, which the first call installs. If the application has installed one of its own
/// before, that one counts, and this one stays empty.
pub fn shared() -> PrometheusHandle {
    static SHARED: OnceLock<PrometheusHandle> = OnceLock::new();
    let install = || {
        let recorder = builder().expect("the buckets are not empty").build_recorder();
        let handle = recorder.handle();
        if metrics::set_global_recorder(recorder).is_err() {
            tracing::info!("the application has installed a metrics recorder; /metrics shows only process_*");
        }
        handle
    };
    SHARED.get_or_init(install).clone()
}

/// Merges recorded samples periodically: otherwise they would accumulate if `/metrics` is not read.
pub async fn upkeep(metrics: PrometheusHandle) {
    let mut interval = tokio::time::interval(UPKEEP_INTERVAL);
    loop {
        interval.tick().await;
        metrics.run_upkeep();
    }
}

fn builder() -> Result<PrometheusBuilder, BuildError> {
    let mut builder = PrometheusBuilder::new();
    for name in IN_SECONDS {
        builder = builder.set_buckets_for_metric(Matcher::Full(name.into()), &SECONDS)?;
    }
    builder.set_buckets_for_metric(Matcher::Full("convoke_dispatch_batch_size".into()), &SIZES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_takes_time_is_shown_in_buckets() {
        let recorder = builder().expect("buckets that rise").build_recorder();
        metrics::with_local_recorder(&recorder, || {
            for name in IN_SECONDS {
                metrics::histogram!(name).record(0.003);
            }
        });
        let text = recorder.handle().render();
        for name in IN_SECONDS {
            assert!(text.contains(&format!("{name}_bucket{{le=\"0.005\"}} 1")), "{name}: {text}");
        }
    }
}
