//! What may become of a create, and of the replies about a batch.

use super::*;

#[tokio::test]
async fn a_batch_that_comes_late_is_unknown_until_then_even_after_the_connection_was_cut() {
    let (sandbox, api) = slow().await;
    let control = sandbox.control();
    let late = control.inject(Operation::Create, When::Next, Fault::LateCommit(Duration::from_millis(200)));
    control.inject(Operation::Create, When::Next, Fault::AcceptThenCut);
    assert!(api.try_create(&[item("a", "One.")]).await.is_err());
    assert_eq!((late.fired(), control.batches().len()), (1, 0));
    assert_eq!(api.list("").await.json()["data"], json!([]));
    control.wait_batches(1).await;
    let id = control.batches()[0].clone();
    assert_eq!(api.list("").await.json()["first_id"], json!(id));
    control.finish(&id);
    control.wait_ended(&id).await;
    assert_eq!(PaidLedger::read(sandbox.ledger_path()).unwrap().len(), 1);

    control.inject(Operation::Create, When::Next, Fault::LateCommit(Duration::MAX));
    let id = api.create_many(1).await;
    for status in [api.retrieve(&id).await.status, api.cancel(&id).await.status, api.results(&id).await.status] {
        assert_eq!(status, 404, "the reply names a batch that does not exist yet");
    }
}

#[tokio::test]
async fn a_twin_has_the_same_requests_and_is_paid_too() {
    let (sandbox, api) = fast().await;
    let control = sandbox.control();
    control.inject(Operation::Create, When::Next, Fault::Twin);
    let id = api.create_many(3).await;
    let both = control.batches();
    assert_eq!((both.len(), &both[0]), (2, &id));
    for id in &both {
        assert_eq!(ended(&api, id).await["request_counts"]["succeeded"], 3);
    }
    let summary = PaidLedger::summary(&PaidLedger::read(sandbox.ledger_path()).unwrap());
    assert_eq!((summary.items_paid, summary.custom_ids_paid_twice), (6, 3));
}

#[tokio::test]
async fn somebody_elses_batch_has_as_many_requests_and_is_not_in_the_ledger() {
    let (sandbox, api) = fast().await;
    let control = sandbox.control();
    control.inject(Operation::Create, When::Next, Fault::ForeignBatch);
    let id = api.create_many(4).await;
    let foreign = control.batches()[0].clone();
    assert_ne!(foreign, id);
    assert_eq!(ended(&api, &foreign).await["request_counts"]["succeeded"], 4);
    ended(&api, &id).await;
    assert!(api.results(&foreign).await.body.contains("somebody-else-3"));
    let paid = PaidLedger::read(sandbox.ledger_path()).unwrap();
    assert!(paid.len() == 4 && paid.iter().all(|item| item.batch_id.as_ref() == Some(&id)));
}

#[tokio::test]
async fn one_guilty_request_is_named_and_refuses_the_whole_create() {
    let (sandbox, api) = slow().await;
    let message = "requests.{n}.params.messages: Input should be a valid list".to_owned();
    let fault = Fault::GuiltyItem { containing: "poison".to_owned(), message };
    let guilty = sandbox.control().inject(Operation::Create, When::Always, fault);
    let reply = api.create(&[item("a", "One."), item("b", "The poison."), item("c", "Two.")]).await;
    assert_eq!((reply.status, reply.error_type()), (400, "invalid_request_error".to_owned()));
    assert_eq!(reply.message(), "requests.1.params.messages: Input should be a valid list");
    assert_eq!(sandbox.control().batches().len(), 0);
    assert_eq!(api.create(&[item("a", "One."), item("c", "Two.")]).await.status, 200);
    assert_eq!(guilty.fired(), 1, "the innocent have not met it");
}

#[tokio::test]
async fn a_reset_is_seen_as_one_and_a_refused_request_takes_no_such_effect() {
    let (sandbox, api) = slow().await;
    let control = sandbox.control();
    let reset = control.inject(Operation::Create, When::Times(2), Fault::AcceptThenReset);
    assert_eq!(api.create(&[]).await.status, 400, "what was refused is told as it is");
    assert_eq!(reset.fired(), 0);
    let error = format!("{:?}", api.try_create(&[item("a", "One.")]).await.unwrap_err());
    assert!(error.contains("ConnectionReset"), "{error}");
    assert_eq!((reset.fired(), control.batches().len()), (1, 1));
}

#[tokio::test]
async fn limits_are_told_by_headers_and_a_spend_cap_by_its_code_alone() {
    let (sandbox, api) = slow().await;
    let control = sandbox.control();
    control.inject(Operation::List, When::Next, Fault::RateLimited { retry_after: Some(9) });
    let reply = api.list("").await;
    assert_eq!((reply.status, reply.header("retry-after")), (429, "9"));
    assert_eq!(reply.header("anthropic-ratelimit-requests-remaining"), "0");
    assert!(reply.header("anthropic-ratelimit-requests-reset").ends_with('Z'));
    for fault in [Fault::RateLimited { retry_after: None }, Fault::SpendCap] {
        let capped = fault == Fault::SpendCap;
        control.inject(Operation::List, When::Next, fault);
        let reply = api.list("").await;
        assert_eq!((reply.status, reply.error_type()), (429, "rate_limit_error".to_owned()));
        assert!(!reply.has_header("retry-after"));
        let code = reply.json()["error"]["details"]["error_code"].clone();
        assert_eq!(code, if capped { json!("enforced_spend_limit_reached") } else { Value::Null });
    }
}

#[tokio::test]
async fn a_failure_after_the_end_waits_for_the_end() {
    let (sandbox, api) = slow().await;
    let control = sandbox.control();
    let failing = control.inject(Operation::Retrieve, When::Times(2), Fault::FailAfterEnd(500));
    let id = api.create_many(1).await;
    assert_eq!(api.retrieve(&id).await.status, 200);
    control.finish(&id);
    control.wait_ended(&id).await;
    for status in [500, 500, 200] {
        assert_eq!(api.retrieve(&id).await.status, status);
    }
    assert_eq!(failing.fired(), 2);
    control.inject(Operation::Results, When::Next, Fault::FailAfterEnd(404));
    assert_eq!((api.results(&id).await.status, api.results(&id).await.status), (404, 200));
}

#[tokio::test]
async fn every_outcome_there_is_comes_in_turn_and_only_successes_are_paid() {
    let (sandbox, api) = fast().await;
    let control = sandbox.control();
    let fault = control.inject(Operation::Create, When::Next, Fault::EveryOutcome);
    let id = api.create_many(24).await;
    let counts = ended(&api, &id).await["request_counts"].clone();
    assert_eq!(counts, json!({"processing": 0, "succeeded": 2, "errored": 18, "canceled": 2, "expired": 2}));
    let lines = api.results(&id).await.lines();
    let types: HashSet<_> = lines.iter().filter_map(|line| line["result"]["error"]["error"]["type"].as_str()).collect();
    assert_eq!(types.len(), 9);
    assert_eq!((fault.fired(), PaidLedger::read(sandbox.ledger_path()).unwrap().len()), (22, 2));
}

#[tokio::test]
async fn archived_results_are_gone_although_they_were_paid() {
    let (sandbox, api) = fast().await;
    sandbox.control().inject(Operation::Create, When::Next, Fault::Archive);
    let id = api.create_many(2).await;
    let batch = ended(&api, &id).await;
    assert!(batch["results_url"].is_null() && batch["archived_at"].is_string());
    assert_eq!(api.results(&id).await.status, 404);
    assert_eq!(PaidLedger::read(sandbox.ledger_path()).unwrap().len(), 2);
}

#[tokio::test]
async fn the_objects_of_replies_are_spoilt() {
    let (sandbox, api) = fast().await;
    let id = ended_batch(&sandbox, &api, 2).await;
    let whole = api.retrieve(&id).await;
    let spoilt = async |with| {
        let fault = sandbox.control().inject(Operation::Retrieve, When::Next, Fault::SpoilObject(with));
        let reply = api.retrieve(&id).await;
        assert_eq!((fault.fired(), reply.status), (1, 200), "{with:?}");
        reply
    };
    assert_eq!(spoilt(SpoiltObject::Half).await.body, whole.body[..whole.body.len() / 2]);
    assert_eq!(spoilt(SpoiltObject::Empty).await.body, "");
    assert_eq!(spoilt(SpoiltObject::WebPage).await.header("content-type"), "text/html");
    let whole = whole.json();
    for (with, place, now) in [
        (SpoiltObject::UnknownStatus, "/processing_status", Some(json!("contemplating"))),
        (SpoiltObject::NullStatus, "/processing_status", Some(Value::Null)),
        (SpoiltObject::MissingCounts, "/request_counts", None),
        (SpoiltObject::NullCounts, "/request_counts", Some(Value::Null)),
        (SpoiltObject::MissingCount, "/request_counts/errored", None),
        (SpoiltObject::NullExpiry, "/expires_at", Some(Value::Null)),
        (SpoiltObject::NullResults, "/results_url", Some(Value::Null)),
        (SpoiltObject::EmptyResults, "/results_url", Some(json!(""))),
        (SpoiltObject::ForeignResultsUrl, "/results_url", Some(json!("http://results.invalid/elsewhere"))),
        (
            SpoiltObject::OddTimes,
            "/created_at",
            Some(json!(whole["created_at"].as_str().unwrap().trim_end_matches('Z'))),
        ),
    ] {
        assert!(whole.pointer(place).is_some());
        assert_eq!(spoilt(with).await.json().pointer(place).cloned(), now, "{with:?}");
    }
    let page = Fault::SpoilObject(SpoiltObject::MissingPaging);
    sandbox.control().inject(Operation::List, When::Next, page);
    let page = api.list("").await.json();
    assert!(page.get("has_more").is_none() && page["data"][0]["id"] == json!(id));
}

#[tokio::test]
async fn a_live_call_is_paid_when_it_was_accepted_and_only_then() {
    let (sandbox, api) = fast().await;
    let control = sandbox.control();
    let paid = || PaidLedger::read(sandbox.ledger_path()).unwrap().len();
    let ask = async || api.try_usual("POST", "/v1/messages", &question("One.")).await;
    for (fault, error_type) in [
        (Fault::rate_limited(1), "rate_limit_error"),
        (Fault::status(500), "api_error"),
        (Fault::status(529), "overloaded_error"),
    ] {
        control.inject(Operation::Live, When::Next, fault);
        assert_eq!(ask().await.unwrap().error_type(), error_type);
    }
    control.inject(Operation::Live, When::Next, Fault::Cut);
    assert!(ask().await.is_err());
    assert_eq!(paid(), 0);
    control.inject(Operation::Live, When::Next, Fault::AcceptThenCut);
    assert!(ask().await.is_err());
    assert_eq!(paid(), 1);
    control.inject(Operation::Live, When::Next, Fault::AcceptThenStatus(529));
    assert_eq!(ask().await.unwrap().status, 529);
    assert_eq!(paid(), 2);
}
