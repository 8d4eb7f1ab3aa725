//! The result lines.

use super::*;

#[tokio::test]
async fn they_are_jsonl_in_another_order_with_every_custom_id_once() {
    let (sandbox, api) = fast().await;
    let id = ended_batch(&sandbox, &api, 50).await;
    let reply = api.results(&id).await;
    assert_eq!(reply.header("content-type"), "application/x-jsonl");
    let order: Vec<String> = reply.lines().iter().map(|line| line["custom_id"].as_str().unwrap().to_owned()).collect();
    let sent: Vec<String> = (0..50).map(|n| format!("item-{n}")).collect();
    assert_ne!(order, sent);
    assert_eq!(order.iter().collect::<HashSet<_>>(), sent.iter().collect());
    assert_eq!(order.len(), 50);
    assert_eq!(api.results(&id).await.body, reply.body);
}

#[tokio::test]
async fn even_two_requests_come_back_the_other_way_round() {
    let (sandbox, api) = fast().await;
    for _ in 0..5 {
        let id = ended_batch(&sandbox, &api, 2).await;
        assert_eq!(api.results(&id).await.lines()[0]["custom_id"], "item-1");
    }
}

#[tokio::test]
async fn there_are_none_before_the_end_and_after_the_archive() {
    let (sandbox, api) = slow().await;
    let id = api.create_many(1).await;
    assert_eq!(api.results(&id).await.status, 404);
    assert!(!sandbox.control().archive(&id));
    sandbox.control().finish(&id);
    ended(&api, &id).await;
    assert_eq!(api.results(&id).await.status, 200);
    assert!(sandbox.control().archive(&id));
    let batch = api.retrieve(&id).await.json();
    assert!(batch["archived_at"].is_string() && batch["results_url"].is_null());
    assert_eq!(api.results(&id).await.status, 404);
}

#[tokio::test]
async fn a_succeeded_line_holds_a_complete_message() {
    let (sandbox, api) = fast().await;
    ended_batch(&sandbox, &api, 1).await;
    let id = sandbox.control().batches()[0].clone();
    let line = api.results(&id).await.lines()[0].clone();
    assert_eq!(line["result"]["type"], "succeeded");
    let message = &line["result"]["message"];
    assert!(message["id"].as_str().unwrap().starts_with("msg_"));
    assert_eq!(message["type"], "message");
    assert_eq!(message["role"], "assistant");
    assert_eq!(message["model"], "claude-haiku-4-5");
    assert_eq!(message["content"][0]["type"], "text");
    assert_eq!(message["stop_reason"], "end_turn");
    assert_eq!(message.get("stop_sequence"), Some(&Value::Null));
    for name in ["input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens"] {
        assert!(message["usage"][name].is_u64(), "{name}");
    }
}

#[tokio::test]
async fn params_are_only_checked_when_they_are_processed() {
    let (sandbox, api) = fast().await;
    let with = |id: &str, name: &str, value: Value| {
        let mut item = item(id, "One.");
        item["params"][name] = value;
        item
    };
    let without = |id: &str, name: &str| {
        let mut item = item(id, "One.");
        item["params"].as_object_mut().unwrap().remove(name);
        item
    };
    let bad = [
        without("model", "model"),
        without("max_tokens", "max_tokens"),
        without("messages", "messages"),
        with("stream", "stream", json!(true)),
        with("zero", "max_tokens", json!(0)),
        with("none", "messages", json!([])),
        with("role", "messages", json!([{"role": "robot", "content": "x"}])),
        json!({"custom_id": "list", "params": []}),
    ];
    let mut all = bad.to_vec();
    all.push(item("fine", "One."));
    let reply = api.create(&all).await;
    assert_eq!(reply.status, 200);
    ended(&api, &reply.id()).await;
    let lines = api.results(&reply.id()).await.lines();
    for item in &bad {
        let result = by_id(&lines, item["custom_id"].as_str().unwrap());
        assert_eq!(result["type"], "errored", "{item}");
        assert_eq!(result["error"]["type"], "error");
        assert_eq!(result["error"]["error"]["type"], "invalid_request_error");
        assert!(result["error"]["error"]["message"].is_string());
    }
    assert_eq!(by_id(&lines, "fine")["type"], "succeeded");
    assert_eq!(PaidLedger::read(sandbox.ledger_path()).unwrap().len(), 1);
}

#[tokio::test]
async fn the_version_decides_whether_sampling_parameters_are_allowed() {
    let (_sandbox, mut api) = fast().await;
    let mut warm = item("a", "One.");
    warm["params"]["temperature"] = json!(0.5);
    for (version, outcome) in [("2023-06-01", "succeeded"), ("2026-10-21", "errored")] {
        api.version = version;
        let id = api.create(&[warm.clone()]).await.id();
        ended(&api, &id).await;
        assert_eq!(api.results(&id).await.lines()[0]["result"]["type"], outcome, "{version}");
    }
}
