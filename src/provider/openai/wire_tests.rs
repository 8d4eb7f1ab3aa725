//! Tables of what is written to the API and read from it.

use super::*;

fn id() -> CustomId {
    CustomId { intent: IntentId::new(), index: 7 }
}

#[test]
fn a_request_is_one_line_for_the_endpoint_of_its_shape() {
    let id = id();
    let chat = "{\n  \"model\": \"m\",\r\n  \"messages\": [\"a\\nb\"]\n}";
    let line = item(id, chat);
    assert!(!line.contains(['\n', '\r']));
    let read: Value = serde_json::from_str(&line).unwrap();
    assert_eq!((&read["url"], &read["method"]), (&json!(CHAT), &json!("POST")));
    assert_eq!(read["body"]["messages"][0], "a\nb");
    assert_eq!(group(chat), "/v1/chat/completions m");
    assert_eq!(group(r#"{"input":"x","model":"n"}"#), "/v1/responses n");
    for strange in [r#"{"model":7}"#, "{}", r#"{"messages":[],"input":[]}"#] {
        assert!(group(strange).starts_with(CHAT), "{strange}");
    }
}

#[test]
fn the_form_is_as_long_as_it_says() {
    let form = Form::new(IntentId::new());
    assert_eq!(form.length, (form.before.len() + form.after.len()) as u64);
    assert!(form.before.ends_with("\r\n\r\n") && form.after.starts_with("\r\n--"));
}

#[test]
fn a_listed_batch_carries_our_intent_or_does_not() {
    let intent = IntentId::new();
    let created: Value = serde_json::from_str(&create_body("file-1", "/v1/responses m", intent)).unwrap();
    assert_eq!(created["endpoint"], RESPONSES);
    let batch = |metadata: Value| json!({"id": "batch_1", "created_at": 1_790_000_000, "metadata": metadata});
    let ours = listed(&batch(created["metadata"].clone())).unwrap();
    assert_eq!((ours.intent, ours.requests), (Some(intent), None));
    assert!(ours.created_at.is_some());
    for metadata in [json!(null), json!({}), json!({ INTENT: "x" }), json!({ INTENT: 7 })] {
        assert_eq!(listed(&batch(metadata)).unwrap().intent, None);
    }
    assert_eq!(listed(&json!({"created_at": 1})), None);
}

#[test]
fn ids_of_files_may_be_absent_null_or_empty() {
    let of = |output: Value, error: Value| {
        let batch = json!({"status": "completed", "output_file_id": output, "error_file_id": error,
            "request_counts": {"total": 3, "completed": 2, "failed": 1}});
        polled(&batch).unwrap()
    };
    assert_eq!(of(json!("file-1"), json!("file-2")).results_url.as_deref(), Some("file-1 file-2"));
    assert_eq!(of(json!(null), json!("file-2")).results_url.as_deref(), Some("file-2"));
    assert_eq!(of(json!(""), json!("")).results_url.as_deref(), Some(""));
    let bare = polled(&json!({"status": "expired"})).unwrap();
    assert_eq!((bare.state, bare.requests, bare.succeeded), (BatchState::Ended, None, None));
    assert_eq!(of(json!(null), json!(null)).succeeded, Some(2));
}

#[test]
fn statuses_are_told_apart() {
    let state = |status: &str| polled(&json!({"status": status})).unwrap().state;
    for status in ["validating", "in_progress", "finalizing", "cancelling"] {
        assert_eq!(state(status), BatchState::InProgress);
    }
    for status in ["completed", "expired", "cancelled"] {
        assert_eq!(state(status), BatchState::Ended);
    }
    assert_eq!(state("paused"), BatchState::Unknown("paused".into()));
    assert!(matches!(state("failed"), BatchState::Refused(_)));
    let partly = json!({"status": "failed", "output_file_id": "file-1"});
    assert_eq!(polled(&partly).unwrap().state, BatchState::Ended);
    assert_eq!(polled(&json!({})), None);
}

#[test]
fn a_late_refusal_says_what_it_is_about() {
    let of = |errors: Value| match polled(&json!({"status": "failed", "errors": errors})).unwrap().state {
        BatchState::Refused(refused) => refused,
        other => panic!("{other:?}"),
    };
    let one = |code: &str| of(json!({"data": [{"code": code, "message": "m", "param": null, "line": null}]}));
    assert_eq!(one("token_limit_exceeded").because, Refusal::Moment);
    assert_eq!(one("billing_hard_limit_reached").because, Refusal::Account);
    assert_eq!(one("too_many_requests").because, Refusal::Size);
    assert_eq!(one("model_not_found").because, Refusal::Every);
    assert_eq!((one("new").because, one("new").why), (Refusal::Request(None), "new: m".into()));
    let lines = of(json!({"object": "list", "data": [
        {"code": "invalid_json_line", "message": "m", "line": 3}, {"code": null, "message": null, "line": 1}, 7,
        {"code": "x", "line": 0}
    ]}));
    assert_eq!(lines.items, [2, 0, -1]);
    for nothing in [json!(null), json!({}), json!({"data": []})] {
        assert_eq!(of(nothing).because, Refusal::Request(None));
    }
}

#[test]
fn refusals_of_a_create_are_told_apart() {
    let of = |status, code: &str| because(status, &json!({"error": {"code": code, "type": "t"}}).to_string());
    assert_eq!(of(429, "rate_limit_exceeded"), Refusal::Moment);
    assert_eq!(of(429, "insufficient_quota"), Refusal::Account);
    assert_eq!(of(400, "billing_hard_limit_reached"), Refusal::Account);
    assert_eq!(of(400, "invalid_value"), Refusal::Request(None));
    assert_eq!(of(401, "invalid_api_key"), Refusal::Account);
    assert_eq!((of(404, ""), of(413, "")), (Refusal::Moment, Refusal::Size));
    assert_eq!(because(400, "<html>"), Refusal::Request(None));
}

fn line(rest: &str) -> (CustomId, Line) {
    let id = id();
    (id, read_line(format!(r#"{{"id":"r","custom_id":"{id}",{rest}}}"#).as_bytes()))
}

#[test]
fn a_success_is_kept_as_it_came() {
    let id = id();
    let body = r#"{"model":"m","choices":[{"x":"\ud83d"}],"usage":{"prompt_tokens":5,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":2}}}"#;
    let text = format!(r#"{{"custom_id":"{id}","response":{{"status_code":200,"body":{body}}},"error":null}}"#);
    let read = read_line(text.as_bytes());
    let usage = Usage { input_tokens: 3, output_tokens: 2, cache_read_tokens: 2, cache_write_tokens: 0 };
    assert_eq!(read.outcome, LineOutcome::Succeeded { model: Some("m".into()), usage: Some(usage) });
    assert_eq!(reply(text.as_bytes()).unwrap().as_str(), body);
    let (_, responses) =
        line(r#""response":{"status_code":200,"body":{"usage":{"input_tokens":3,"output_tokens":1}}},"error":null"#);
    let usage = Usage { input_tokens: 3, output_tokens: 1, ..Usage::default() };
    assert_eq!(responses.outcome, LineOutcome::Succeeded { model: None, usage: Some(usage) });
    let (_, silent) = line(r#""response":{"status_code":200,"body":{"usage":null}}"#);
    assert_eq!(silent.outcome, LineOutcome::Succeeded { model: None, usage: None });
}

#[test]
fn refusals_expiry_and_cancellation_are_told_apart() {
    let of = |rest: &str| line(rest).1.outcome;
    let status = |status: u16| {
        of(&format!(
            r#""response":{{"status_code":{status},"body":{{"error":{{"code":"c","message":"m"}}}}}},"error":null"#
        ))
    };
    for code in [400, 401, 403, 404, 413, 422] {
        assert_eq!(status(code), LineOutcome::Errored { retryable: false, message: format!("{code}: c: m") });
    }
    for code in [408, 409, 429, 500, 503] {
        assert_eq!(status(code), LineOutcome::Errored { retryable: true, message: format!("{code}: c: m") });
    }
    assert_eq!(of(r#""response":null,"error":{"code":"batch_expired","message":"m"}"#), LineOutcome::Expired);
    assert_eq!(of(r#""response":null,"error":{"code":"batch_cancelled","message":"m"}"#), LineOutcome::Canceled);
    assert!(matches!(of(r#""response":null,"error":{}"#), LineOutcome::Errored { retryable: true, .. }));
}

#[test]
fn what_cannot_be_read_is_unknown_but_keeps_its_owner() {
    for rest in [
        r#""response":null,"error":null"#,
        r#""response":{}"#,
        r#""response":{"status_code":200,"body":null}"#,
        r#""response":{"status_code":302,"body":{}}"#,
        r#""response":7"#,
        r#""response":{"status_code":"200"}"#,
        r#""error":"text""#,
    ] {
        let (id, read) = line(rest);
        assert_eq!((read.custom_id, read.outcome), (Some(id), LineOutcome::Unknown), "{rest}");
    }
    for text in [&b"\xff"[..], b"", b"{", br#"{"custom_id":"x"#, br#"{"custom_id":null}"#] {
        let read = read_line(text);
        assert!(!read.named && read.outcome == LineOutcome::Unknown);
    }
}
