use super::*;
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
