//! Dynamic workflows on a node. What their steps can do is in `programs`.

use crate::support::{check, config, database, until_over};
use longhaul::run::flow::Flow;
use longhaul::{Dynamic, DynamicWorkflow, FailureCode, Node, RunStatus, StepOptions, StepPolicy};
use serde_json::json;
use std::time::Duration;

/// Adds up what it is given; `more` makes it another one of the same name.
fn sums(version: u32, more: bool) -> DynamicWorkflow {
    let slow = StepOptions {
        policy: StepPolicy { timeout: Some(Duration::from_millis(50)), ..StepPolicy::DEFAULT },
        blocking: false,
    };
    let mut builder = DynamicWorkflow::builder("sums", version)
        .step("open", |run, _| {
            Box::pin(async move {
                let numbers = run.input().as_array().cloned().unwrap_or_default();
                run.state.insert("count".into(), json!(numbers.len()));
                Ok(match numbers.first() {
                    None => run.goto("hang", json!(null)),
                    Some(first) if first.is_string() => run.goto(first.as_str().unwrap_or_default(), json!(null)),
                    Some(_) => run.call("add", numbers).then("close"),
                })
            })
        })
        .step_with("add", StepOptions { blocking: true, ..StepOptions::default() }, |run, numbers| {
            Box::pin(async move {
                Ok(run.finish(numbers.as_array().into_iter().flatten().filter_map(|n| n.as_i64()).sum::<i64>()))
            })
        })
        .step("close", |run, sum| Box::pin(async move { Ok(run.finish(json!([sum, run.state["count"]]))) }))
        .step_with("hang", slow, |_, _| Box::pin(std::future::pending()));
    if more {
        builder = builder.step("more", |run, _| Box::pin(async move { Ok(run.finish(0)) }));
    }
    builder.build().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dynamic_workflow_is_enqueued_by_its_manifest() {
    let db = database().await;
    let flow = sums(1, false);
    let manifest = flow.manifest().clone();
    let node = Node::builder(db.url()).flow(flow).config(config("a")).start().await.unwrap();
    let client = node.client();
    let run = client.enqueue_dynamic(&manifest, "1", &json!([1, 2, 3])).await.unwrap();
    assert_eq!(run.output().await.unwrap(), json!([6, 3]));
    let again = client.enqueue_dynamic(&manifest, "1", &json!([1, 2, 3])).await.unwrap();
    assert_eq!(again.output().await.unwrap(), json!([6, 3]));
    assert_eq!(client.enqueue_dynamic(&manifest, "1", &json!([4])).await.unwrap_err().code(), "duplicate-run");
    assert_eq!(client.enqueue_dynamic(&manifest, "~1", &json!([4])).await.unwrap_err().code(), "invalid-run-id");
    let other = sums(1, true);
    assert_eq!(client.enqueue_dynamic(other.manifest(), "2", &json!([4])).await.unwrap_err().code(), "workflow-drift");

    client.enqueue_dynamic(&manifest, "hangs", &json!([])).await.unwrap();
    client.enqueue_dynamic(&manifest, "lost", &json!(["missing"])).await.unwrap();
    until_over(&client).await;
    assert_eq!(crate::support::failure::<Dynamic>(&client, "hangs").await.0, FailureCode::StepTimeout);
    let lost = client.run("lost").await.unwrap();
    assert_eq!(lost.status, RunStatus::Parked);
    check(&db).await;
    node.shutdown().await.unwrap();
}
