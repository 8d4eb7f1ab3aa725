//! The calls that steer a sandbox over HTTP.

use super::*;

#[tokio::test]
async fn faults_are_injected_counted_and_cleared_without_a_key() {
    let (sandbox, api) = slow().await;
    let plain = async |method: &str, path: &str, body: &Value| {
        let headers = [("content-type", "application/json")];
        api.send_raw(method, path, &headers, &body.to_string()).await
    };
    let cut = json!({"operation": "create", "fault": "accept_then_cut"});
    assert_eq!(plain("POST", "/sandbox/faults", &cut).await.json()["fired"], 0);
    let late = json!({"operation": "create", "when": {"times": 2}, "fault": {"list_lag": 60_000}});
    assert_eq!(plain("POST", "/sandbox/faults", &late).await.status, 200);
    assert!(api.try_create(&[item("a", "One.")]).await.is_err());
    let rules = plain("GET", "/sandbox/faults", &Value::Null).await.json();
    assert_eq!((&rules[0]["fired"], &rules[0]["spent"]), (&json!(1), &json!(true)));
    assert_eq!((&rules[1]["fired"], &rules[1]["spent"]), (&json!(1), &json!(false)));
    let rules = plain("DELETE", "/sandbox/faults", &Value::Null).await.json();
    assert_eq!(rules[1]["spent"], true);
    assert_eq!(api.create_many_reply(1).await.status, 200);
    for bad in [json!({"operation": "create", "fault": "no_such_fault"}), json!({"fault": "cut"})] {
        let reply = plain("POST", "/sandbox/faults", &bad).await;
        assert!(reply.status == 422 && reply.json()["error"].is_string(), "{bad}");
    }
    assert_eq!(sandbox.control().faults().len(), 2);
    let named = plain("GET", "/sandbox/faults/named", &Value::Null).await.json();
    assert!(named.as_array().unwrap().iter().any(|named| named["name"] == "create_late_after_cut"));
    let all = plain("POST", "/sandbox/faults/all", &json!({"seed": 1})).await.json();
    assert!(all.as_array().unwrap().len() > 50);
}

#[tokio::test]
async fn batches_are_finished_archived_and_counted() {
    let (sandbox, api) = slow().await;
    let id = api.create_many(2).await;
    let post = async |path: &str, body: Value| {
        api.send_raw("POST", path, &[("content-type", "application/json")], &body.to_string()).await.json()
    };
    assert_eq!(post(&format!("/sandbox/batches/{id}/archive"), json!({})).await["archived"], false);
    assert_eq!(post(&format!("/sandbox/batches/{id}/finish"), json!({})).await["finished"], true);
    assert_eq!(api.retrieve(&id).await.json()["processing_status"], "ended", "it answers when the batch has ended");
    assert_eq!(post(&format!("/sandbox/batches/{id}/archive"), json!({})).await["archived"], true);
    let paid = api.get("/sandbox/paid").await.json();
    assert_eq!((&paid["summary"]["items_paid"], &paid["items"][0]["batch_id"]), (&json!(2), &json!(id)));
    let foreign = post("/sandbox/batches", json!({"requests": 2})).await["id"].clone();
    assert_eq!(api.get("/sandbox/batches").await.json(), json!([id, foreign]));
    assert!(post("/sandbox/batches", json!({"requests": 0})).await["error"].is_string());
    let requests = api.get("/sandbox/requests").await.json();
    assert_eq!(requests["create"], json!({"seen": 1, "served": 1}));
    sandbox.control().inject(Operation::List, When::Next, Fault::Hold);
    let asking = tokio::spawn({
        let api = api.clone();
        async move { api.list("").await.status }
    });
    sandbox.control().wait_served(Operation::List, 1).await;
    post("/sandbox/release", json!({})).await;
    assert_eq!(asking.await.unwrap(), 200);
}
