//! The paid ledger.

use super::*;

#[tokio::test]
async fn each_item_is_paid_once_at_half_price() {
    let (sandbox, api) = fast().await;
    let id = ended_batch(&sandbox, &api, 3).await;
    assert!(!sandbox.control().finish(&id), "a batch is processed once");
    let lines = api.results(&id).await.lines();
    let paid = PaidLedger::read(sandbox.ledger_path()).unwrap();
    assert_eq!(paid.len(), 3);
    for item in &paid {
        assert_eq!(item.batch_id.as_deref(), Some(&*id));
        let usage = &by_id(&lines, item.custom_id.as_deref().unwrap())["message"]["usage"];
        assert_eq!(usage["input_tokens"], item.input_tokens);
        assert_eq!(usage["output_tokens"], item.output_tokens);
        assert_eq!(item.nano_usd, Some((item.input_tokens * 1_000 + item.output_tokens * 5_000) / 2));
        assert!(!item.live);
    }
    let summary = PaidLedger::summary(&paid);
    assert_eq!((summary.items_paid, summary.logical_paid_twice, summary.custom_ids_paid_twice), (3, 0, 0));
    assert_eq!(summary.nano_usd_live, 0);
    assert_eq!(summary.nano_usd_batch, paid.iter().filter_map(|item| item.nano_usd).sum::<u64>());
}

#[tokio::test]
async fn the_same_request_in_two_batches_is_seen_as_paid_twice() {
    let (sandbox, api) = fast().await;
    let mut other_run = item("c", "Same text.");
    other_run["params"]["metadata"] = json!({"user_id": "another run"});
    for items in [vec![item("a", "Same text.")], vec![item("b", "Same text."), other_run]] {
        let id = api.create(&items).await.id();
        ended(&api, &id).await;
    }
    let summary = PaidLedger::summary(&PaidLedger::read(sandbox.ledger_path()).unwrap());
    assert_eq!((summary.items_paid, summary.logical_paid_twice, summary.custom_ids_paid_twice), (3, 1, 0));
}

#[tokio::test]
async fn key_order_and_spaces_do_not_make_another_logical_request() {
    let (sandbox, api) = fast().await;
    for params in [
        r#"{"model":"m-1","max_tokens":9,"messages":[{"role":"user","content":"Hi."}]}"#,
        r#"{ "messages": [{"content":"Hi.","role":"user"}], "max_tokens": 9, "model": "m-1" }"#,
    ] {
        let body = format!(r#"{{"requests":[{{"custom_id":"a","params":{params}}}]}}"#);
        let reply = api.post("/v1/messages/batches", &body).await;
        ended(&api, &reply.id()).await;
    }
    let paid = PaidLedger::read(sandbox.ledger_path()).unwrap();
    assert_eq!(paid[0].logical, paid[1].logical);
    assert_eq!(paid[0].logical.len(), 32);
    assert_eq!(paid[0].nano_usd, None, "an unknown model has an unknown price");
    assert_eq!(PaidLedger::summary(&paid).items_without_price, 2);
    assert_eq!(
        canonical_json(&json!({"b": [1, {"d": null, "c": "x"}], "a": 1.5})),
        r#"{"a":1.5,"b":[1,{"c":"x","d":null}]}"#
    );
}

#[tokio::test]
async fn a_live_call_gives_the_same_answer_at_full_price() {
    let (sandbox, api) = fast().await;
    let id = api.create(&[item("a", "One text.")]).await.id();
    ended(&api, &id).await;
    let batched = api.results(&id).await.lines()[0]["result"]["message"].clone();
    let live = api.post("/v1/messages", &question("One text.").to_string()).await;
    assert_eq!(live.json(), batched);
    let paid = PaidLedger::read(sandbox.ledger_path()).unwrap();
    assert_eq!(paid[1].nano_usd.unwrap(), paid[0].nano_usd.unwrap() * 2);
    assert!(paid[1].live && paid[1].batch_id.is_none() && paid[1].custom_id.is_none());
    assert_eq!(sandbox.control().seen(Operation::Live), 1);
    assert_eq!(api.post("/v1/messages", r#"{"model":"m"}"#).await.status, 400);
}

#[tokio::test]
async fn a_ledger_is_appended_to_and_a_torn_last_line_is_dropped() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("paid.jsonl");
    for _ in 0..2 {
        let (sandbox, api) = start(Config::default().processing(Duration::ZERO).ledger(&path)).await;
        ended_batch(&sandbox, &api, 1).await;
        sandbox.stop().await;
        let whole = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, format!("{whole}{{\"custom_id\":\"to")).unwrap();
    }
    assert_eq!(PaidLedger::read(&path).unwrap().len(), 2);
    std::fs::write(&path, "nonsense\n").unwrap();
    assert!(PaidLedger::read(&path).unwrap_err().to_string().contains("line 1"));
}
