//! Keeps what is counted, for `/metrics` to show. There is one in a process; whatever counts must start after it.

use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle};

const SECONDS: [f64; 16] =
    [0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0, 600.0];
const IN_SECONDS: [&str; 4] =
    ["convoke_job_wait_seconds", "convoke_job_run_seconds", "convoke_store_seconds", "convoke_mesh_call_seconds"];
const SIZES: [f64; 9] = [1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1_000.0, 3_000.0, 10_000.0];

/// Makes it the process's recorder. Fails if there is one already.
pub fn install() -> Result<PrometheusHandle, BuildError> {
    builder()?.install_recorder()
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
