//! The batch object and its life.

use super::*;

#[tokio::test]
async fn a_new_batch_is_in_progress_with_all_requests_processing() {
    let (_sandbox, api) = slow().await;
    let reply = api.create(&[item("a", "One."), item("b", "Two.")]).await;
    assert_eq!(reply.status, 200);
    let batch = reply.json();
    assert!(batch["id"].as_str().unwrap().starts_with("msgbatch_"));
    assert_eq!(batch["type"], "message_batch");
    assert_eq!(batch["processing_status"], "in_progress");
    let counts = json!({"processing": 2, "succeeded": 0, "errored": 0, "canceled": 0, "expired": 0});
    assert_eq!(batch["request_counts"], counts);
    for name in ["ended_at", "cancel_initiated_at", "archived_at", "results_url"] {
        assert_eq!(batch.get(name), Some(&Value::Null), "{name}");
    }
}

#[tokio::test]
async fn it_expires_a_day_after_its_creation() {
    let (_sandbox, api) = slow().await;
    let batch = api.create(&[item("a", "One.")]).await.json();
    let time = |name: &str| chrono::DateTime::parse_from_rfc3339(batch[name].as_str().unwrap()).unwrap();
    assert_eq!(time("expires_at") - time("created_at"), chrono::TimeDelta::hours(24));
}

#[tokio::test]
async fn retrieve_shows_the_same_object_until_it_ends() {
    let (sandbox, api) = slow().await;
    let created = api.create(&[item("a", "One.")]).await.json();
    let id = created["id"].as_str().unwrap();
    assert_eq!(api.retrieve(id).await.json(), created);
    assert!(sandbox.control().finish(id));
    let done = ended(&api, id).await;
    let url = format!("{}/v1/messages/batches/{id}/results", sandbox.base_url());
    assert_eq!(done["results_url"], url);
    assert!(done["ended_at"].is_string());
    assert_eq!(done["created_at"], created["created_at"]);
}

#[tokio::test]
async fn counts_add_up_before_and_after_the_end() {
    let (sandbox, api) = slow().await;
    let bad = json!({"custom_id": "bad", "params": {"model": "m"}});
    let id = api.create(&[item("a", "One."), bad]).await.id();
    assert_eq!(api.retrieve(&id).await.json()["request_counts"]["processing"], 2);
    sandbox.control().finish(&id);
    let counts = ended(&api, &id).await["request_counts"].clone();
    assert_eq!(counts, json!({"processing": 0, "succeeded": 1, "errored": 1, "canceled": 0, "expired": 0}));
}

#[tokio::test]
async fn a_batch_ends_by_itself_after_its_time() {
    let config = Config::default().processing(Duration::from_millis(30)).jitter(Duration::from_millis(30));
    let (_sandbox, api) = start(config).await;
    let id = api.create_many(3).await;
    assert_eq!(ended(&api, &id).await["request_counts"]["succeeded"], 3);
}

#[tokio::test]
async fn unknown_ids_and_paths_are_not_found() {
    let (_sandbox, api) = fast().await;
    for path in ["/v1/messages/batches/msgbatch_x", "/v1/messages/batches/msgbatch_x/results", "/v1/other"] {
        let reply = api.get(path).await;
        assert_eq!((reply.status, reply.error_type()), (404, "not_found_error".to_owned()), "{path}");
    }
    assert_eq!(api.post("/v1/messages/batches/msgbatch_x", "").await.status, 405);
}

#[tokio::test]
async fn a_seed_makes_ids_the_same_and_no_seed_makes_them_differ() {
    let id = async |config: Config| {
        let (_sandbox, api) = start(config).await;
        api.create_many(1).await
    };
    assert_eq!(id(Config::default().seed(7)).await, id(Config::default().seed(7)).await);
    assert_ne!(id(Config::default()).await, id(Config::default()).await);
}
