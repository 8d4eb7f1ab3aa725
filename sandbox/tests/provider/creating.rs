//! What a create is refused for.

use super::*;

async fn refused(api: &Api, body: &str) -> String {
    let reply = api.post("/v1/messages/batches", body).await;
    assert_eq!((reply.status, reply.error_type()), (400, "invalid_request_error".to_owned()), "{body}");
    reply.message()
}

#[tokio::test]
async fn custom_ids_are_checked_at_once_and_refuse_the_whole_batch() {
    let (sandbox, api) = fast().await;
    let (long, longest) = ("x".repeat(65), "x".repeat(64));
    for (id, why) in [("", "at least 1"), (&*long, "at most 64 characters"), ("a b", "pattern"), ("ü", "pattern")] {
        let reply = api.create(&[item("fine", "One."), item(id, "Two.")]).await;
        assert_eq!(reply.status, 400);
        let message = reply.message();
        assert!(message.starts_with("requests.1.custom_id: ") && message.contains(why), "{message}");
    }
    assert_eq!(api.create(&[item("a-Z_9", "One."), item(&longest, "Two.")]).await.status, 200);
    assert_eq!(sandbox.control().batches().len(), 1);
}

#[tokio::test]
async fn a_custom_id_is_unique_in_its_batch_only() {
    let (_sandbox, api) = fast().await;
    let reply = api.create(&[item("a", "One."), item("b", "Two."), item("a", "Three.")]).await;
    assert!(reply.status == 400 && reply.message().starts_with("requests.2.custom_id: "), "{reply:?}");
    assert_eq!(api.create(&[item("a", "One.")]).await.status, 200);
    assert_eq!(api.create(&[item("a", "One.")]).await.status, 200);
}

#[tokio::test]
async fn missing_parts_are_named() {
    let (_sandbox, api) = fast().await;
    assert!(refused(&api, "{}").await.contains("requests: Field required"));
    assert!(refused(&api, r#"{"requests":[]}"#).await.contains("at least 1 item"));
    assert!(refused(&api, r#"{"requests":7}"#).await.contains("requests"));
    assert!(refused(&api, r#"{"requests":[{"params":{}}]}"#).await.contains("requests.0.custom_id: Field required"));
    assert!(refused(&api, r#"{"requests":[{"custom_id":"a"}]}"#).await.contains("requests.0.params: Field required"));
    assert!(refused(&api, r#"{"requests":[],"metadata":{}}"#).await.contains("metadata: Extra inputs"));
}

#[tokio::test]
async fn a_body_that_is_no_json_is_refused() {
    let (_sandbox, api) = fast().await;
    for body in ["", "{", r#"{"requests":[{"custom_id":"a","params":{"x":1,}}]}"#] {
        assert!(refused(&api, body).await.contains("not valid JSON"), "{body}");
    }
}

#[tokio::test]
async fn one_lone_surrogate_refuses_the_body_and_a_pair_does_not() {
    let (_sandbox, api) = fast().await;
    let body = |text: &str| {
        let params = format!(r#"{{"model":"m","max_tokens":9,"messages":[{{"role":"user","content":"{text}"}}]}}"#);
        format!(r#"{{"requests":[{{"custom_id":"a","params":{params}}}]}}"#)
    };
    for lone in [r"\ud83d", r"x \udc00 y", r"\ud83d\u0041", r"\\\ud83d"] {
        let message = refused(&api, &body(lone)).await;
        assert!(message.contains("not valid JSON: no low surrogate"), "{message}");
    }
    for fine in [r"\ud83d\ude00", r"\\ud83d", r"\u0041\n\\"] {
        assert_eq!(api.post("/v1/messages/batches", &body(fine)).await.status, 200, "{fine}");
    }
}

#[tokio::test]
async fn too_many_requests_are_too_large() {
    let (_sandbox, api) = start(Config::default().max_requests(2)).await;
    assert_eq!(api.create_many_reply(2).await.status, 200);
    let reply = api.create_many_reply(3).await;
    assert_eq!((reply.status, reply.error_type()), (413, "request_too_large".to_owned()));
}

#[tokio::test]
async fn too_many_bytes_are_too_large_and_the_refusal_can_be_read() {
    let (sandbox, api) = start(Config::default().max_bytes(100_000)).await;
    let reply = api.create(&[item("a", &"word ".repeat(1_000_000))]).await;
    assert_eq!((reply.status, reply.error_type()), (413, "request_too_large".to_owned()));
    assert_eq!(sandbox.control().batches().len(), 0);
    assert_eq!(api.create_many_reply(1).await.status, 200);
}
