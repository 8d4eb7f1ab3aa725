//! OpenAI's API: files, batches, and what becomes of them.

use super::openai_api::{batch_of, chat_line, chat_lines, ended_of};
use super::*;

async fn openai() -> (Sandbox, Api) {
    start(Config::openai().processing(Duration::MAX)).await
}

fn result<'a>(lines: &'a [Value], custom_id: &str) -> &'a Value {
    lines.iter().find(|line| line["custom_id"] == custom_id).unwrap()
}

#[tokio::test]
async fn a_batch_goes_from_its_file_to_its_output_and_is_paid_once() {
    let (sandbox, api) = openai().await;
    let file = api.upload(&chat_lines(3)).await;
    let created = api.create_of(&file).await;
    assert_eq!(created.status, 200);
    assert!(created.header("x-request-id").starts_with("req_"));
    let created = created.json();
    assert_eq!((&created["object"], &created["status"]), (&json!("batch"), &json!("validating")));
    assert_eq!(created["request_counts"], json!({"total": 0, "completed": 0, "failed": 0}));
    let id = created["id"].as_str().unwrap();
    api.poll(async || api.batch(id).await, |batch| batch["status"] == "in_progress").await;
    assert!(sandbox.control().finish(id));
    sandbox.control().wait_ended(id).await;
    let batch = api.batch(id).await;
    assert_eq!(batch["status"], "completed");
    assert_eq!(batch["request_counts"], json!({"total": 3, "completed": 3, "failed": 0}));
    assert_eq!((&batch["metadata"]["intent"], &batch["input_file_id"]), (&json!("i-1"), &json!(file)));
    assert!(batch["completed_at"].is_u64() && batch["failed_at"].is_null() && batch["error_file_id"].is_null());
    let lines = api.content(&batch["output_file_id"]).await;
    let paid = PaidLedger::read(sandbox.ledger_path()).unwrap();
    assert_eq!((lines.len(), paid.len()), (3, 3));
    for item in &paid {
        let line = result(&lines, item.custom_id.as_deref().unwrap());
        assert_eq!((&line["error"], &line["response"]["status_code"]), (&Value::Null, &json!(200)));
        let body = &line["response"]["body"];
        assert_eq!(
            (&body["object"], &body["choices"][0]["finish_reason"]),
            (&json!("chat.completion"), &json!("stop"))
        );
        assert!(body["choices"][0]["message"]["content"].as_str().unwrap().starts_with("Text number"));
        assert_eq!(body["usage"]["prompt_tokens"], item.input_tokens);
        assert_eq!(body["usage"]["completion_tokens"], item.output_tokens);
        assert_eq!((item.batch_id.as_deref(), item.live), (Some(id), false));
    }
    let total: u64 = paid.iter().map(|item| item.output_tokens).sum();
    assert_eq!(batch["usage"]["output_tokens"], total);
}

#[tokio::test]
async fn the_list_shows_metadata_newest_first_in_pages() {
    let (_sandbox, api) = openai().await;
    let file = api.upload(&chat_lines(1)).await;
    let mut ids = Vec::new();
    for n in 0..3 {
        let mut body = batch_of(&file);
        body["metadata"] = json!({"intent": format!("i-{n}")});
        ids.insert(0, api.ask("POST", "/v1/batches", &body).await.unwrap().id());
    }
    let page = api.ask_for("/v1/batches?limit=2").await.json();
    assert_eq!((&page["object"], &page["has_more"]), (&json!("list"), &json!(true)));
    assert_eq!((&page["first_id"], &page["last_id"]), (&json!(ids[0]), &json!(ids[1])));
    assert_eq!(page["data"][0]["metadata"], json!({"intent": "i-2"}));
    let page = api.ask_for(&format!("/v1/batches?limit=2&after={}", ids[1])).await.json();
    assert_eq!((&page["data"][0]["id"], &page["has_more"]), (&json!(ids[2]), &json!(false)));
    for limit in ["0", "101", "x"] {
        assert_eq!(api.ask_for(&format!("/v1/batches?limit={limit}")).await.status, 400, "{limit}");
    }
}

#[tokio::test]
async fn what_is_wrong_with_a_create_is_said_at_once() {
    let (sandbox, api) = openai().await;
    let file = api.upload(&chat_lines(1)).await;
    let with = |name: &str, value: Value| {
        let mut body = batch_of(&file);
        body[name] = value;
        body
    };
    let many: serde_json::Map<String, Value> = (0..17).map(|n| (format!("k{n}"), json!("v"))).collect();
    let bad = [
        (with("endpoint", json!("/v1/dreams")), 400),
        (with("completion_window", json!("1h")), 400),
        (with("input_file_id", json!("file-unknown")), 404),
        (with("metadata", Value::Object(many)), 400),
        (with("metadata", json!({"k": "v".repeat(513)})), 400),
        (with("metadata", json!({"k".repeat(65): "v"})), 400),
        (with("metadata", json!({"k": 1})), 400),
    ];
    for (body, status) in bad {
        let reply = api.ask("POST", "/v1/batches", &body).await.unwrap();
        assert_eq!((reply.status, reply.error_type()), (status, "invalid_request_error".to_owned()), "{body}");
    }
    assert_eq!(sandbox.control().batches().len(), 0);
    let reply = api.send_raw("GET", "/v1/batches", &[], "").await;
    assert_eq!((reply.status, &reply.json()["error"]["code"]), (401, &json!("invalid_api_key")));
}

#[tokio::test]
async fn what_is_wrong_with_the_file_makes_the_batch_failed_later() {
    let (sandbox, api) = openai().await;
    let with = |name: &str, value: Value| {
        let mut line = chat_line("b", "Two.");
        line[name] = value;
        line.to_string()
    };
    let body = |model: &str| json!({"model": model, "messages": [{"role": "user", "content": "x"}]});
    let bad = [
        ("{not json".to_owned(), "invalid_json_line"),
        (with("custom_id", Value::Null), "missing_required_parameter"),
        (with("custom_id", json!("a")), "duplicate_custom_id"),
        (with("method", json!("GET")), "invalid_method"),
        (with("url", json!("/v1/responses")), "invalid_url"),
        (with("body", body("another-model")), "mismatched_model"),
    ];
    for (line, code) in bad {
        let batch = ended_of(&sandbox, &api, &format!("{}\n{line}\n", chat_line("a", "One."))).await;
        assert_eq!((&batch["status"], &batch["errors"]["data"][0]["code"]), (&json!("failed"), &json!(code)), "{line}");
        assert_eq!(batch["errors"]["data"][0]["line"], 2, "{line}");
        assert!(batch["failed_at"].is_u64() && batch["output_file_id"].is_null() && batch["error_file_id"].is_null());
    }
    let batch = ended_of(&sandbox, &api, "\n").await;
    assert_eq!(batch["errors"]["data"][0]["code"], "empty_file");
    assert_eq!(PaidLedger::read(sandbox.ledger_path()).unwrap(), []);
}

#[tokio::test]
async fn a_full_queue_makes_the_batch_failed_and_empties_with_the_end() {
    let (sandbox, api) = start(Config::openai().processing(Duration::MAX).enqueued_tokens(60)).await;
    let file = api.upload(&chat_lines(2)).await;
    let first = api.create_of(&file).await.id();
    api.poll(async || api.batch(&first).await, |batch| batch["status"] == "in_progress").await;
    let second = api.create_of(&file).await.id();
    sandbox.control().wait_ended(&second).await;
    let batch = api.batch(&second).await;
    assert_eq!(
        (&batch["status"], &batch["errors"]["data"][0]["code"]),
        (&json!("failed"), &json!("token_limit_exceeded"))
    );
    sandbox.control().finish(&first);
    sandbox.control().wait_ended(&first).await;
    let third = api.create_of(&file).await.id();
    api.poll(async || api.batch(&third).await, |batch| batch["status"] == "in_progress").await;
}

#[tokio::test]
async fn refused_and_expired_requests_are_in_the_error_file_and_unpaid() {
    let (sandbox, api) = openai().await;
    sandbox.control().inject(Operation::Create, When::Next, Fault::Expire { every: 3 });
    let mut bad = chat_line("bad", "x");
    bad["body"]["messages"] = json!([]);
    let batch = ended_of(&sandbox, &api, &format!("{}{bad}\n", chat_lines(4))).await;
    assert_eq!(batch["status"], "expired");
    assert!(batch["expired_at"].is_u64());
    let errors = api.content(&batch["error_file_id"]).await;
    let refused = &result(&errors, "bad")["response"];
    assert_eq!((&refused["status_code"], &result(&errors, "bad")["error"]), (&json!(400), &Value::Null));
    assert_eq!(refused["body"]["error"]["type"], "invalid_request_error");
    let expired = result(&errors, "item-2");
    assert_eq!((&expired["response"], &expired["error"]["code"]), (&Value::Null, &json!("batch_expired")));
    assert_eq!(api.content(&batch["output_file_id"]).await.len(), 3, "what was done before the end is there");
    assert_eq!(PaidLedger::read(sandbox.ledger_path()).unwrap().len(), 3);
}

#[tokio::test]
async fn a_batch_without_one_success_is_completed_without_an_output_file() {
    let (sandbox, api) = openai().await;
    let all = Fault::ErrorItems { error_type: "rate_limit_error".to_owned(), every: 1 };
    sandbox.control().inject(Operation::Create, When::Next, all);
    let batch = ended_of(&sandbox, &api, &chat_lines(2)).await;
    assert_eq!((&batch["status"], &batch["output_file_id"]), (&json!("completed"), &Value::Null));
    let errors = api.content(&batch["error_file_id"]).await;
    assert_eq!(errors[0]["response"]["status_code"], 429);
    assert_eq!(errors[0]["response"]["body"]["error"]["code"], "rate_limit_exceeded");
}

#[tokio::test]
async fn a_cancelled_batch_keeps_what_was_too_far_along() {
    let (sandbox, api) = openai().await;
    sandbox.control().inject(Operation::Cancel, When::Next, Fault::FinishBeforeCancel(1));
    let id = api.create_of(&api.upload(&chat_lines(3)).await).await.id();
    let cancel = format!("/v1/batches/{id}/cancel");
    let reply = api.ask("POST", &cancel, &Value::Null).await.unwrap().json();
    assert_eq!(reply["status"], "cancelling");
    sandbox.control().wait_ended(&id).await;
    let batch = api.batch(&id).await;
    assert_eq!(batch["status"], "cancelled");
    assert!(batch["cancelling_at"].is_u64() && batch["cancelled_at"].is_u64());
    assert_eq!(api.content(&batch["output_file_id"]).await.len(), 1);
    assert_eq!(api.content(&batch["error_file_id"]).await[0]["error"]["code"], "batch_cancelled");
    assert_eq!(PaidLedger::read(sandbox.ledger_path()).unwrap().len(), 1);
    assert_eq!(api.ask("POST", &cancel, &Value::Null).await.unwrap().status, 409);
}

#[tokio::test]
async fn it_is_finalizing_while_the_files_are_written() {
    let config = Config::openai().processing(Duration::ZERO).finalizing(Duration::MAX);
    let (sandbox, api) = start(config).await;
    let id = api.create_of(&api.upload(&chat_lines(1)).await).await.id();
    let batch = api.poll(async || api.batch(&id).await, |batch| batch["status"] == "finalizing").await;
    assert!(batch["finalizing_at"].is_u64() && batch["output_file_id"].is_null());
    assert_eq!(PaidLedger::read(sandbox.ledger_path()).unwrap().len(), 1);
}

#[tokio::test]
async fn files_are_listed_read_and_deleted() {
    let (sandbox, api) = start(Config::openai().processing(Duration::MAX).max_bytes(2_000)).await;
    let content = chat_lines(2);
    let id = api.upload(&content).await;
    let file = api.ask_for(&format!("/v1/files/{id}")).await.json();
    assert_eq!((&file["bytes"], &file["purpose"]), (&json!(content.len()), &json!("batch")));
    assert_eq!((&file["filename"], &file["object"]), (&json!("in.jsonl"), &json!("file")));
    assert_eq!(api.ask_for(&format!("/v1/files/{id}/content")).await.body, content);
    assert_eq!(api.upload_as("in.txt", "batch", "x").await.unwrap().status, 400);
    assert_eq!(api.upload_as("in.jsonl", "batch", &"x".repeat(2_001)).await.unwrap().status, 413);
    let batch = ended_of(&sandbox, &api, &content).await;
    let list = api.ask_for("/v1/files?purpose=batch&order=asc").await.json();
    assert_eq!((&list["first_id"], list["data"].as_array().unwrap().len()), (&json!(id), 2));
    let newest = api.ask_for("/v1/files?limit=1").await.json();
    assert_eq!((&newest["first_id"], &newest["has_more"]), (&batch["output_file_id"], &json!(true)));
    let deleted = api.ask("DELETE", &format!("/v1/files/{id}"), &Value::Null).await.unwrap().json();
    assert_eq!(deleted["deleted"], true);
    assert_eq!(api.ask_for(&format!("/v1/files/{id}/content")).await.status, 404);
    assert!(sandbox.control().archive(batch["id"].as_str().unwrap()));
    let gone = format!("/v1/files/{}/content", batch["output_file_id"].as_str().unwrap());
    assert_eq!(api.ask_for(&gone).await.status, 404);
}

#[tokio::test]
async fn a_tool_is_called_and_its_result_is_answered_in_both_forms() {
    let (sandbox, api) = openai().await;
    let parameters = json!({"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]});
    let chat = json!({
        "model": "gpt-4o-mini",
        "messages": [{"role": "user", "content": "Call the tool count_words: one two three."}],
        "tools": [{"type": "function", "function": {"name": "count_words", "parameters": parameters}}],
    });
    let said = api.ask("POST", "/v1/chat/completions", &chat).await.unwrap().json();
    let choice = &said["choices"][0];
    assert_eq!(choice["finish_reason"], "tool_calls", "{said}");
    let call = &choice["message"]["tool_calls"][0];
    assert_eq!(call["function"]["name"], "count_words");
    assert!(
        serde_json::from_str::<Value>(call["function"]["arguments"].as_str().unwrap()).unwrap()["text"].is_string()
    );
    let mut again = chat.clone();
    let result = json!({"role": "tool", "tool_call_id": call["id"], "content": "3 words"});
    again["messages"].as_array_mut().unwrap().extend([choice["message"].clone(), result]);
    let said = api.ask("POST", "/v1/chat/completions", &again).await.unwrap().json();
    assert!(said["choices"][0]["message"]["content"].as_str().unwrap().contains("3 words"), "{said}");

    let ask = json!({
        "model": "gpt-4o-mini", "instructions": "Be brief.",
        "input": [{"role": "user", "content": [{"type": "input_text", "text": "Call the tool count_words: one two."}]}],
        "tools": [{"type": "function", "name": "count_words", "parameters": parameters}],
    });
    let said = api.ask("POST", "/v1/responses", &ask).await.unwrap().json();
    let call = said["output"].as_array().unwrap().iter().find(|item| item["type"] == "function_call").unwrap();
    let mut again = ask.clone();
    let result = json!({"type": "function_call_output", "call_id": call["call_id"], "output": "2 words"});
    again["input"].as_array_mut().unwrap().extend([call.clone(), result]);
    let said = api.ask("POST", "/v1/responses", &again).await.unwrap().json();
    assert_eq!((&said["object"], &said["status"]), (&json!("response"), &json!("completed")));
    assert!(said["output"][0]["content"][0]["text"].as_str().unwrap().contains("2 words"), "{said}");
    let mut short = ask;
    (short["tools"], short["max_output_tokens"]) = (json!([]), json!(1));
    let said = api.ask("POST", "/v1/responses", &short).await.unwrap().json();
    assert_eq!(said["incomplete_details"]["reason"], "max_output_tokens");
    let paid = PaidLedger::read(sandbox.ledger_path()).unwrap();
    assert!(paid.len() == 5 && paid.iter().all(|item| item.live));
}

#[tokio::test]
async fn limits_are_told_in_its_own_headers_and_codes() {
    let (sandbox, api) = openai().await;
    sandbox.control().inject(Operation::List, When::Next, Fault::rate_limited(3));
    let reply = api.ask_for("/v1/batches").await;
    assert_eq!((reply.status, reply.header("retry-after")), (429, "3"));
    assert_eq!(
        (reply.header("x-ratelimit-remaining-requests"), &reply.json()["error"]["code"]),
        ("0", &json!("rate_limit_exceeded"))
    );
    sandbox.control().inject(Operation::List, When::Next, Fault::SpendCap);
    assert_eq!(api.ask_for("/v1/batches").await.json()["error"]["code"], "insufficient_quota");
}
