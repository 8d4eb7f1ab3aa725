//! Who is let in, and what every reply carries.

use super::*;

#[tokio::test]
async fn every_reply_names_request_organization_and_workspace() {
    let (_sandbox, api) = start(Config::default().organization("org_1").workspace("wrkspc_1")).await;
    for reply in [api.create_many_reply(1).await, api.get("/v1/other").await] {
        assert!(reply.header("request-id").starts_with("req_"));
        assert_eq!(reply.header("anthropic-organization-id"), "org_1");
        assert_eq!(reply.header("anthropic-workspace-id"), "wrkspc_1");
        assert!(reply.header("date").ends_with("GMT"));
    }
}

#[tokio::test]
async fn an_error_body_repeats_the_request_id() {
    let (_sandbox, api) = fast().await;
    let reply = api.retrieve("msgbatch_x").await;
    let body = reply.json();
    assert_eq!(body["type"], "error");
    assert!(body["error"]["message"].as_str().unwrap().contains("msgbatch_x"));
    assert_eq!(body["request_id"], reply.header("request-id"));
}

#[tokio::test]
async fn a_key_is_required() {
    let (sandbox, api) = fast().await;
    let reply = api.send_raw("GET", "/v1/messages/batches", &[("anthropic-version", "2023-06-01")], "").await;
    assert_eq!((reply.status, reply.error_type()), (401, "authentication_error".to_owned()));
    assert_eq!(sandbox.control().seen(Operation::List), 0);
}

#[tokio::test]
async fn only_the_configured_key_is_let_in_by_either_header() {
    let (_sandbox, api) = start(Config::default().api_key(ApiKey::new("right"))).await;
    let version = ("anthropic-version", "2023-06-01");
    let list = async |key| api.send_raw("GET", "/v1/messages/batches", &[version, key], "").await.status;
    assert_eq!(list(("x-api-key", "wrong")).await, 401);
    assert_eq!(list(("x-api-key", "right")).await, 200);
    assert_eq!(list(("authorization", "Bearer right")).await, 200);
}

#[tokio::test]
async fn a_known_version_is_required() {
    let (_sandbox, api) = fast().await;
    let key = ("x-api-key", "k");
    let missing = api.send_raw("GET", "/v1/messages/batches", &[key], "").await;
    assert_eq!((missing.status, missing.error_type()), (400, "invalid_request_error".to_owned()));
    let unknown = [key, ("anthropic-version", "1999-01-01")];
    assert_eq!(api.send_raw("GET", "/v1/messages/batches", &unknown, "").await.status, 400);
}

#[test]
fn the_key_does_not_show_in_debug_output() {
    let shown = format!("{:?}", Config::default().api_key(ApiKey::new("hush")));
    assert!(shown.contains("redacted") && !shown.contains("hush"), "{shown}");
}
