use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use convoke::mesh::{CallOptions, TraceParent, current_trace, in_trace};
use convoke::{Epoch, EpochFloor, Mesh, MeshError};
use parking_lot::Mutex;
use serde_json::json;

use crate::stage::*;

fn at(epoch: u64) -> CallOptions {
    CallOptions { epoch: Some(Epoch(epoch)), ..CallOptions::default() }
}

#[tokio::test]
async fn a_stale_caller_is_refused_and_its_handler_does_not_run() {
    let (a, b) = pair().await;
    let (floor, runs) = (EpochFloor::new(Epoch(3)), Arc::new(AtomicUsize::new(0)));
    let counted = runs.clone();
    let b = b.on_fenced(floor.clone(), move |context, Echo(_)| {
        counted.fetch_add(1, Ordering::Relaxed);
        async move { Ok(json!(context.epoch().map(|epoch| epoch.0))) }
    });
    let lowest = |response: Result<_, MeshError>| match response {
        Err(MeshError::StaleEpoch { lowest, .. }) => lowest,
        other => panic!("{other:?}"),
    };
    for (from, to) in [(&a, &b), (&b, &b)] {
        let call = |options| from.invoke_with(to.instance_id(), Echo(json!(null)), options);
        let before = floor.lowest();
        assert_eq!(lowest(call(at(2)).await), before);
        assert_eq!(lowest(call(CallOptions::default()).await), before, "who names none is refused");
        let newer = before.next();
        assert_eq!(call(at(newer.0)).await.expect("a newer term"), newer.0);
        assert_eq!(lowest(call(at(before.0)).await), newer, "the one before is over now");
    }
    assert_eq!(runs.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn all_and_any_can_be_called_in_the_name_of_a_term() {
    let (a, b) = pair().await;
    let echo = |mesh: Mesh| {
        mesh.on_fenced(EpochFloor::new(Epoch(3)), |context, Echo(_)| async move {
            Ok(json!([context.epoch().map(|epoch| epoch.0), context.timeout().as_secs()]))
        })
    };
    let (a, _b) = (echo(a), echo(b));
    let options = CallOptions { timeout: Some(std::time::Duration::from_secs(4)), ..at(3) };
    let responses = a.invoke_all_with(Echo(json!(null)), options).await.expect("the registry is there");
    let responses: Vec<_> = responses.into_iter().map(|(_, response)| response.expect("of this term")).collect();
    assert_eq!(responses, [json!([3, 4]), json!([3, 4])]);
    let (_, response) = a.invoke_any_with(Echo(json!(null)), options).await.expect("of this term");
    assert_eq!(response, json!([3, 4]));
    let stale = a.invoke_all_with(Echo(json!(null)), at(2)).await.expect("the registry is there");
    assert!(stale.iter().all(|(_, response)| matches!(response, Err(MeshError::StaleEpoch { .. }))), "{stale:?}");
    let error = a.invoke_any(Echo(json!(null))).await.expect_err("it names no term");
    assert!(matches!(error, MeshError::StaleEpoch { .. }), "{error}");
}

#[tokio::test]
async fn a_trace_is_carried_to_all_and_to_any() {
    let (a, b) = pair().await;
    let echo = |mesh: Mesh| {
        mesh.on_with(|context, Echo(_)| async move { Ok(json!(context.trace().map(|trace| trace.to_string()))) })
    };
    let (a, _b) = (echo(a), echo(b));
    let root: TraceParent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".parse().expect("a trace");
    let responses = in_trace(root, a.invoke_all(Echo(json!(1)))).await.expect("the registry is there");
    let mut seen: Vec<_> = responses.into_iter().map(|(_, response)| response.expect("echo")).collect();
    for _ in 0..2 {
        seen.push(in_trace(root, a.invoke_any(Echo(json!(1)))).await.expect("one replies").1);
    }
    let seen: Vec<TraceParent> =
        seen.iter().map(|trace| trace.as_str().expect("carried").parse().expect("one")).collect();
    assert_eq!(seen.len(), 4);
    assert!(seen.iter().all(|step| step.trace_id() == root.trace_id() && *step != root), "{seen:?}");
    assert_ne!(seen[0], seen[1], "each call is a step of its own");
}

#[tokio::test]
async fn a_trace_is_carried_to_the_handler_and_to_what_it_calls() {
    let key = new_key();
    let (a, b, c) = (start(&key).await, start(&key).await, start(&key).await);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let record = |mesh: Mesh, next: Option<Mesh>| {
        let seen = seen.clone();
        mesh.on_with(move |context, Echo(value)| {
            let (seen, next) = (seen.clone(), next.clone());
            async move {
                assert_eq!(context.trace(), current_trace());
                seen.lock().push(context.trace());
                if let Some(next) = next {
                    next.invoke(convoke::InstanceId(3), Echo(value.clone())).await?;
                }
                Ok(value)
            }
        })
    };
    let (b, _c) = (record(b.clone(), Some(b)), record(c, None));
    let root: TraceParent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".parse().expect("a trace");
    in_trace(root, a.invoke(b.instance_id(), Echo(json!(1)))).await.expect("echo");
    let spans: Vec<_> = seen.lock().drain(..).map(|trace| trace.expect("carried")).collect();
    assert!(spans.iter().all(|span| span.trace_id() == root.trace_id()));
    assert!(spans.len() == 2 && spans[0] != spans[1] && !spans.contains(&root), "{spans:?}");
    a.invoke(b.instance_id(), Echo(json!(1))).await.expect("echo");
    assert_eq!(*seen.lock(), [None, None], "no trace, nothing to carry");
    b.stop().await;
}
