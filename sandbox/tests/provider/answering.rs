//! The answers.

use super::*;

const SPEECH: &str = "Our commerce grows with every season. Commerce and navigation brought prosperity to the harbours. \
    The treasury is sound. Peace and friendship with all nations give us hope and confidence for the treasury and commerce.";

async fn text(api: &Api, prompt: &str) -> String {
    let reply = api.post("/v1/messages", &question(prompt).to_string()).await.json();
    reply["content"][0]["text"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn the_default_answers_are_readable_and_stay_as_they_are() {
    let (_sandbox, api) = fast().await;
    let summary = text(&api, &format!("Summarise this speech in two sentences.\n\n{SPEECH}")).await;
    assert_eq!(
        summary,
        "Commerce and navigation brought prosperity to the harbours. Peace and friendship with all nations give us hope and confidence for \
         the treasury and commerce."
    );
    let themes = text(&api, &format!("Name the themes, separated by commas.\n\n{SPEECH}")).await;
    assert_eq!(themes, "commerce, treasury, confidence");
    let tone = text(&api, &format!("What is the tone? One word.\n\n{SPEECH}")).await;
    assert_eq!(tone, "hopeful");
    assert_eq!(text(&api, "Name the tone: The table is made of wood.").await, "unclear");
    let headline = text(&api, &format!("Write a headline over this speech.\n\n{SPEECH}")).await;
    assert_eq!(headline, "Peace and friendship with all nations give us hope and confidence for ...");
    assert_eq!(text(&api, "Hello").await, "Hello");
}

#[tokio::test]
async fn a_whole_message_stays_as_it_is() {
    let (_sandbox, api) = fast().await;
    let message = api.post("/v1/messages", &question("One text.").to_string()).await.json();
    assert_eq!(
        message,
        json!({
            "id": "msg_01Qy4bK7F5c8q745FWN5zEGp",
            "type": "message",
            "role": "assistant",
            "model": "claude-haiku-4-5",
            "content": [{"type": "text", "text": "One text."}],
            "stop_reason": "end_turn",
            "stop_sequence": null,
            "usage": {
                "input_tokens": 10,
                "cache_creation_input_tokens": 0,
                "cache_read_input_tokens": 0,
                "output_tokens": 3,
            },
        })
    );
}

#[tokio::test]
async fn an_answer_is_cut_at_max_tokens() {
    let (_sandbox, api) = fast().await;
    let mut params = question(SPEECH);
    params["max_tokens"] = json!(3);
    let message = api.post("/v1/messages", &params.to_string()).await.json();
    assert_eq!(message["stop_reason"], "max_tokens");
    assert_eq!(message["usage"]["output_tokens"], 3);
}

#[tokio::test]
async fn a_tool_that_fits_is_called_once_and_its_result_is_used() {
    let (_sandbox, api) = fast().await;
    let mut params = question(&format!("Count the words, then summarise.\n\n{SPEECH}"));
    let schema = json!({"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]});
    let other = json!({"name": "get_weather", "input_schema": {"type": "object"}});
    params["tools"] = json!([other, {"name": "word_count", "input_schema": schema}]);
    let ask = async |params: &Value| api.post("/v1/messages", &params.to_string()).await.json();
    let call = ask(&params).await;
    assert_eq!(call["stop_reason"], "tool_use");
    let block = call["content"][0].clone();
    assert_eq!((&block["type"], &block["name"]), (&json!("tool_use"), &json!("word_count")));
    assert_eq!(block["input"], json!({"text": SPEECH}));
    assert!(block["id"].as_str().unwrap().starts_with("toolu_"));
    assert_eq!(ask(&params).await, call, "the same request gets the same answer");
    let messages = params["messages"].as_array_mut().unwrap();
    messages.push(json!({"role": "assistant", "content": [block]}));
    let result = json!({"type": "tool_result", "tool_use_id": block["id"], "content": "37 words"});
    messages.push(json!({"role": "user", "content": [result]}));
    let end = ask(&params).await;
    assert_eq!(end["stop_reason"], "end_turn");
    assert!(end["content"][0]["text"].as_str().unwrap().ends_with("[37 words]"), "{end}");
}

#[tokio::test]
async fn a_tool_that_looks_at_the_draft_is_given_the_draft() {
    let (_sandbox, api) = fast().await;
    let mut params = question(&format!("Write a summary and count the words of your draft.\n\n{SPEECH}"));
    let schema = json!({"type": "object", "properties": {"draft": {"type": "string"}}, "required": ["draft"]});
    params["tools"] = json!([{"name": "word_count", "input_schema": schema}]);
    let call = api.post("/v1/messages", &params.to_string()).await.json();
    let draft = call["content"][0]["input"]["draft"].as_str().unwrap();
    assert_eq!(draft, text(&api, &format!("Write a summary.\n\n{SPEECH}")).await);
}

#[tokio::test]
async fn a_responder_of_ones_own_replaces_the_answers() {
    use longhaul_sandbox::provider::Answer;
    let config = Config::default().processing(Duration::ZERO).responder(|request| match request.prompt().as_str() {
        "fail" => Answer::error("overloaded_error", "busy"),
        prompt => Answer::text(format!("{}: {prompt}", request.model())),
    });
    let (sandbox, api) = start(config).await;
    let id = api.create(&[item("a", "hello"), item("b", "fail")]).await.id();
    ended(&api, &id).await;
    let lines = api.results(&id).await.lines();
    assert_eq!(by_id(&lines, "a")["message"]["content"][0]["text"], "claude-haiku-4-5: hello");
    assert_eq!(by_id(&lines, "b")["error"]["error"]["type"], "overloaded_error");
    assert_eq!(PaidLedger::read(sandbox.ledger_path()).unwrap().len(), 1);
    assert_eq!(api.post("/v1/messages", &question("fail").to_string()).await.status, 529);
}
