//! What each fault does.

use super::*;

#[tokio::test]
async fn accept_then_cut_creates_the_batch_and_closes_the_connection() {
    let (sandbox, api) = slow().await;
    sandbox.control().inject(Operation::Create, When::Next, Fault::AcceptThenCut);
    let error = api.try_create(&[item("a", "One.")]).await.unwrap_err();
    assert!(!error.is_timeout() && !error.is_connect(), "{error:?}");
    assert_eq!(sandbox.control().batches().len(), 1);
    assert_eq!(api.list("").await.json()["data"][0]["request_counts"]["processing"], 1);
    assert_eq!(sandbox.control().seen(Operation::Create), 1, "nobody has tried again");
}

#[tokio::test]
async fn cut_closes_the_connection_and_creates_nothing() {
    let (sandbox, api) = slow().await;
    sandbox.control().inject(Operation::Create, When::Next, Fault::Cut);
    assert!(api.try_create(&[item("a", "One.")]).await.is_err());
    assert_eq!(sandbox.control().batches().len(), 0);
}

#[tokio::test]
async fn accept_then_status_creates_the_batch_and_answers_with_an_error() {
    let (sandbox, api) = slow().await;
    sandbox.control().inject(Operation::Create, When::Next, Fault::AcceptThenStatus(529));
    let reply = api.create(&[item("a", "One.")]).await;
    assert_eq!((reply.status, reply.error_type()), (529, "overloaded_error".to_owned()));
    assert_eq!(reply.json()["request_id"], reply.header("request-id"));
    assert_eq!(sandbox.control().batches().len(), 1);
}

#[tokio::test]
async fn a_held_create_is_accepted_before_it_is_answered() {
    let (sandbox, api) = slow().await;
    let held = sandbox.control().hold_next_create();
    assert_eq!(api.create(&[]).await.status, 400, "a refused create passes by");
    let asking = tokio::spawn({
        let api = api.clone();
        async move { api.create_many(2).await }
    });
    let id = held.accepted().await;
    assert_eq!(api.retrieve(&id).await.json()["request_counts"]["processing"], 2);
    assert!(!asking.is_finished());
    held.release();
    assert_eq!(asking.await.unwrap(), id);
}

#[tokio::test]
async fn a_held_create_outlives_a_client_that_goes_away() {
    let (sandbox, api) = slow().await;
    let held = sandbox.control().hold_next_create();
    let asking = tokio::spawn({
        let api = api.clone();
        async move { api.create_many(1).await }
    });
    let id = held.accepted().await;
    asking.abort();
    assert!(asking.await.unwrap_err().is_cancelled());
    assert!(sandbox.control().finish(&id));
    ended(&api, &id).await;
}

#[tokio::test]
async fn hold_holds_any_reply_until_all_are_released() {
    let (sandbox, api) = slow().await;
    let control = sandbox.control();
    control.inject(Operation::List, When::Next, Fault::Hold);
    let asking = tokio::spawn({
        let api = api.clone();
        async move { api.list("").await.status }
    });
    control.wait_served(Operation::List, 1).await;
    assert!(!asking.is_finished());
    control.release_all();
    assert_eq!(asking.await.unwrap(), 200);
}

#[tokio::test]
async fn a_status_refuses_with_the_headers_and_body_of_the_script() {
    let odd = Fault::Status { code: 502, body: Some("<html>".to_owned()), headers: vec![] };
    let script = Script::default().on(Operation::Create, When::Nth(1), Fault::rate_limited(7)).on(
        Operation::Create,
        When::Nth(2),
        odd,
    );
    let (sandbox, api) = start(Config::default().script(script)).await;
    let reply = api.create_many_reply(1).await;
    assert_eq!((reply.status, reply.error_type()), (429, "rate_limit_error".to_owned()));
    assert_eq!(reply.header("retry-after"), "7");
    let reply = api.create_many_reply(1).await;
    assert_eq!((reply.status, &*reply.body), (502, "<html>"));
    assert_eq!(sandbox.control().batches().len(), 0);
    assert_eq!(api.create_many_reply(1).await.status, 200);
}

#[tokio::test]
async fn a_known_batch_is_not_found_now_and_then() {
    let (sandbox, api) = slow().await;
    let id = api.create_many(1).await;
    sandbox.control().inject(Operation::Retrieve, When::Every(2), Fault::NotFoundFlap);
    let mut statuses = Vec::new();
    for _ in 0..4 {
        statuses.push(api.retrieve(&id).await.status);
    }
    assert_eq!(statuses, [200, 404, 200, 404]);
    sandbox.control().clear();
    assert_eq!(api.retrieve(&id).await.status, 200);
    assert_eq!(api.retrieve(&id).await.status, 200);
}

#[tokio::test]
async fn the_list_lags_behind() {
    let (sandbox, api) = slow().await;
    sandbox.control().inject(Operation::Create, When::Nth(1), Fault::ListLag(Duration::MAX));
    sandbox.control().inject(Operation::Create, When::Nth(2), Fault::ListLag(Duration::from_millis(50)));
    let (never, soon) = (api.create_many(1).await, api.create_many(1).await);
    let page = api.poll(async || api.list("").await.json(), |page| page["first_id"].is_string()).await;
    assert_eq!((&page["first_id"], &page["last_id"]), (&json!(soon), &json!(soon)));
    assert_eq!(api.retrieve(&never).await.status, 200);
}

#[tokio::test]
async fn results_are_cut_with_an_error_or_end_early_without_one() {
    let (sandbox, api) = fast().await;
    let id = ended_batch(&sandbox, &api, 400).await;
    let whole = api.results(&id).await.body;
    for bytes in [0, 1, 1_000, 100_000] {
        sandbox.control().inject(Operation::Results, When::Next, Fault::CutResultsAt(bytes));
        let (body, error) = api.results_in_pieces(&id).await;
        assert!(error, "after {bytes}");
        assert_eq!(body, whole[..bytes], "after {bytes}");
        sandbox.control().inject(Operation::Results, When::Next, Fault::EndResultsAt(bytes));
        assert_eq!(api.results(&id).await.body, whole[..bytes], "after {bytes}");
    }
    assert_eq!(api.results(&id).await.body, whole);
}

#[tokio::test]
async fn lines_are_missing_doubled_or_spoilt() {
    let (sandbox, api) = fast().await;
    let id = ended_batch(&sandbox, &api, 5).await;
    let whole: Vec<String> = api.results(&id).await.body.lines().map(str::to_owned).collect();
    let spoilt = async |fault| {
        sandbox.control().inject(Operation::Results, When::Next, fault);
        api.results(&id).await.body.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(spoilt(Fault::MissingLines(2)).await, whole[2..]);
    let doubled = spoilt(Fault::DuplicateLines).await;
    assert_eq!((doubled.len(), &doubled[0], &doubled[1]), (10, &whole[0], &whole[0]));
    let bad = spoilt(Fault::BadLine(3, "{not json".to_owned())).await;
    assert_eq!((&*bad[3], &bad[2], &bad[4]), ("{not json", &whole[2], &whole[4]));
}

#[tokio::test]
async fn requests_expire_or_fail_and_are_not_paid() {
    let (sandbox, api) = fast().await;
    let control = sandbox.control();
    control.inject(Operation::Create, When::Nth(1), Fault::Expire { every: 1 });
    let overloaded = Fault::ErrorItems { error_type: "overloaded_error".to_owned(), every: 2 };
    control.inject(Operation::Create, When::Nth(2), overloaded);
    control.inject(Operation::Create, When::Nth(2), Fault::Expire { every: 3 });
    let id = api.create_many(3).await;
    assert_eq!(ended(&api, &id).await["request_counts"]["expired"], 3);
    assert_eq!(api.results(&id).await.lines()[0]["result"], json!({"type": "expired"}));
    let id = api.create_many(6).await;
    let counts = ended(&api, &id).await["request_counts"].clone();
    assert_eq!(counts, json!({"processing": 0, "succeeded": 2, "errored": 2, "canceled": 0, "expired": 2}));
    assert_eq!(by_id(&api.results(&id).await.lines(), "item-1")["error"]["error"]["type"], "overloaded_error");
    assert_eq!(PaidLedger::read(sandbox.ledger_path()).unwrap().len(), 2);
}

#[tokio::test]
async fn the_control_counts_and_waits() {
    let (sandbox, api) = slow().await;
    let control = sandbox.control();
    let waiting = tokio::spawn({
        let control = control.clone();
        async move { control.wait_for(Operation::List, 2).await }
    });
    api.list("").await;
    assert!(!waiting.is_finished());
    api.list("").await;
    waiting.await.unwrap();
    assert_eq!((control.seen(Operation::List), control.served(Operation::List)), (2, 2));
    assert_eq!(control.seen(Operation::Create), 0);
}

#[tokio::test]
async fn stopping_closes_held_connections_and_pays_nothing_more() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("paid.jsonl");
    let (sandbox, api) = start(Config::default().processing(Duration::MAX).ledger(&path)).await;
    let held = sandbox.control().hold_next_create();
    let asking = tokio::spawn({
        let api = api.clone();
        async move { api.try_create(&[item("a", "One.")]).await.map(|reply: Reply| reply.status) }
    });
    held.accepted().await;
    sandbox.stop().await;
    assert!(asking.await.unwrap().is_err());
    assert_eq!(PaidLedger::read(&path).unwrap(), []);
    assert!(api.try_create(&[item("a", "One.")]).await.unwrap_err().is_connect());
}
