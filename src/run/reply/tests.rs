use super::*;
use crate::run::tool::ToolResultBlock;
use serde_json::json;

fn reply(content: &str) -> Reply {
    Reply::from_json(&format!(r#"{{"content":{content},"stop_reason":"end_turn","usage":{{"input_tokens":7}}}}"#))
        .unwrap()
}

#[test]
fn texts_are_joined_and_other_blocks_passed_over() {
    let reply = reply(
        r#"[{"type":"text","text":"a"},{"type":"thinking","thinking":"x","signature":1e999},{"type":7},7,
            {"type":"text","text":null},{"type":"text"},{"type":"text","text":"b","citations":[{"new":1}]}]"#,
    );
    assert_eq!(reply.text(), "ab");
}

#[test]
fn a_cut_emoji_does_not_hide_the_rest() {
    let reply = reply(
        r#"[{"type":"text","text":"so far \ud83d"},{"type":"tool_use","id":"t","name":"n","input":{"a":"\udc00"}}]"#,
    );
    assert_eq!(reply.text(), "so far \u{fffd}");
    assert_eq!(reply.tool_uses()[0].input.as_str(), r#"{"a":"\ufffd"}"#);
    assert!(reply.raw().contains(r"\ud83d"));
}

#[test]
fn tools_need_id_and_name() {
    let reply = reply(
        r#"[{"type":"tool_use","id":"t1","name":"count","input":{"n":18446744073709551617}},
            {"type":"tool_use","id":"t2","name":"bare"},{"type":"tool_use","name":"lost"}]"#,
    );
    let uses = reply.tool_uses();
    assert_eq!(uses.len(), 2);
    assert_eq!((uses[0].id.as_str(), uses[0].name.as_str()), ("t1", "count"));
    assert_eq!(uses[0].input.as_str(), r#"{"n":18446744073709551617}"#);
    assert_eq!(uses[1].input.as_str(), "{}");
}

#[test]
fn what_is_no_message_has_no_text() {
    for text in ["null", "7", "[]", "{}", r#"{"content":"plain"}"#, r#"{"content":null}"#, r#"{"text":"x"}"#] {
        let reply = Reply::from_json(text).unwrap();
        assert_eq!((reply.text(), reply.tool_uses(), reply.stop_reason(), reply.usage()), Default::default(), "{text}");
    }
}

#[test]
fn usage_counts_what_it_knows() {
    let usage = |text: &str| Reply::from_json(&format!(r#"{{"usage":{text}}}"#)).unwrap().usage();
    let some = Usage { input_tokens: 3, cache_read_input_tokens: 2, ..Usage::default() };
    assert_eq!(
        usage(r#"{"input_tokens":3,"cache_read_input_tokens":2,"output_tokens":null,"tier":"batch"}"#),
        Some(some)
    );
    assert_eq!(usage("7"), None);
    assert_eq!(reply("[]").usage().map(|usage| usage.input_tokens), Some(7));
}

#[test]
fn it_passes_through_serde_unchanged() {
    let text = r#"{"z": 1.0, "content": [], "big": 18446744073709551617}"#;
    let pair: (Reply, u8) = serde_json::from_str(&format!("[{text}, 3]")).unwrap();
    assert_eq!(pair.0.raw(), text);
    assert_eq!(serde_json::to_string(&pair).unwrap(), format!("[{text},3]"));
    let of_value: Reply = serde_json::from_value(json!({"stop_reason": "x"})).unwrap();
    assert_eq!(of_value.stop_reason().as_deref(), Some("x"));
}

#[test]
fn its_text_is_not_printed_by_accident() {
    assert!(!format!("{:?}", Reply::of_text("secret")).contains("secret"));
}

fn chat(message: &str) -> Reply {
    Reply::from_json(&format!(
        r#"{{"object":"chat.completion","choices":[{{"index":0,"message":{message},"finish_reason":"stop"}},{{"message":{{"content":"other"}}}}],
            "usage":{{"prompt_tokens":7,"completion_tokens":2,"prompt_tokens_details":{{"cached_tokens":3}}}}}}"#
    ))
    .unwrap()
}

fn responses(output: &str) -> Reply {
    Reply::from_json(&format!(
        r#"{{"object":"response","status":"completed","incomplete_details":null,"output":{output},
            "usage":{{"input_tokens":5,"output_tokens":1,"input_tokens_details":null}}}}"#
    ))
    .unwrap()
}

fn answered(id: &str, is_error: bool) -> ToolResultBlock {
    ToolResultBlock { kind: "tool_result".into(), tool_use_id: id.into(), content: "4".into(), is_error }
}

#[test]
fn a_chat_completion_is_read_by_its_first_choice() {
    let reply = chat(r#"{"role":"assistant","content":"so far \ud83d","refusal":null,"new":{}}"#);
    assert_eq!((reply.text().as_str(), reply.tool_uses().len()), ("so far \u{fffd}", 0));
    assert_eq!(reply.stop_reason().as_deref(), Some("stop"));
    let usage = Usage { input_tokens: 4, output_tokens: 2, cache_read_input_tokens: 3, ..Usage::default() };
    assert_eq!(reply.usage(), Some(usage));
    assert_eq!(
        chat(r#"{"content":[{"type":"text","text":"a"},{"type":"x"},{"type":"text","text":"b"}]}"#).text(),
        "ab"
    );
    for strange in ["null", "7", r#"{"content":null}"#, r#"{"tool_calls":7}"#] {
        assert_eq!((chat(strange).text(), chat(strange).tool_uses()), Default::default(), "{strange}");
    }
    assert_eq!(Reply::from_json(r#"{"choices":[]}"#).unwrap().stop_reason(), None);
}

#[test]
fn a_response_is_read_item_by_item() {
    let reply = responses(
        r#"[{"type":"reasoning","summary":[]},{"type":"message","content":[{"type":"output_text","text":"a"}]},7,
            {"type":"function_call","call_id":"c1","name":"add","arguments":"{\"n\":18446744073709551617}"},
            {"type":"message","content":[{"type":"refusal","refusal":"x"},{"type":"output_text","text":"b"}]}]"#,
    );
    assert_eq!((reply.text().as_str(), reply.stop_reason().as_deref()), ("ab", Some("completed")));
    let uses = reply.tool_uses();
    assert_eq!((uses.len(), uses[0].id.as_str(), uses[0].name.as_str()), (1, "c1", "add"));
    assert_eq!(uses[0].input.as_str(), r#"{"n":18446744073709551617}"#);
    assert_eq!(reply.usage().map(|usage| (usage.input_tokens, usage.output_tokens)), Some((5, 1)));
    let cut =
        Reply::from_json(r#"{"output":[],"status":"incomplete","incomplete_details":{"reason":"max_output_tokens"}}"#);
    assert_eq!(cut.unwrap().stop_reason().as_deref(), Some("max_output_tokens"));
}

#[test]
fn arguments_that_are_no_json_reach_the_tool_as_a_string() {
    let call = |arguments: &str| {
        let call = json!({"id": "t", "type": "function", "function": {"name": "n", "arguments": arguments}});
        chat(&json!({"content": null, "tool_calls": [call]}).to_string()).tool_uses()[0].input.as_str().to_owned()
    };
    assert_eq!(call(r#"{"a": 1}"#), r#"{"a": 1}"#);
    assert_eq!(call(""), "{}");
    assert_eq!(call("{\"a\": "), r#""{\"a\": ""#);
}

#[test]
fn a_conversation_goes_on_in_the_shape_it_has() {
    let turn = |reply: &Reply, results: &[ToolResultBlock]| {
        let turn = reply.turn(results).unwrap();
        serde_json::from_str::<serde_json::Value>(&serde_json::to_string(&turn).unwrap()).unwrap()
    };
    let message = r#"{"role":"assistant","content":null,"tool_calls":[{"id":"t","type":"function","function":{"name":"n","arguments":"{}"}}]}"#;
    let chat = chat(message);
    assert_eq!(chat.conversation_field(), "messages");
    assert_eq!(
        turn(&chat, &[answered("t", true)]),
        json!([serde_json::from_str::<serde_json::Value>(message).unwrap(), {"role": "tool", "tool_call_id": "t", "content": "Error: 4"}])
    );
    let responses = responses(r#"[{"type":"reasoning","id":"r"}]"#);
    assert_eq!(responses.conversation_field(), "input");
    assert_eq!(
        turn(&responses, &[answered("c", false)]),
        json!([{"type": "reasoning", "id": "r"}, {"type": "function_call_output", "call_id": "c", "output": "4"}])
    );
    let messages = reply(r#"[{"type":"text","text":"x"}]"#);
    assert_eq!(messages.conversation_field(), "messages");
    assert_eq!(
        turn(&messages, &[answered("t", true)]),
        json!([{"role": "assistant", "content": [{"type": "text", "text": "x"}]}, {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "t", "content": "4", "is_error": true}]}])
    );
}
