//! How result lines are spoilt, for one download and for all.

use super::*;

/// The raw lines of a download that meets a fault.
async fn lines_with(sandbox: &Sandbox, api: &Api, id: &str, fault: Fault) -> Vec<Vec<u8>> {
    let fault = sandbox.control().inject(Operation::Results, When::Next, fault);
    let body = api.results_bytes(id).await;
    assert!(fault.fired() > 0);
    let lines = body.strip_suffix(b"\n").unwrap().split(|b| *b == b'\n');
    lines.map(<[u8]>::to_vec).collect()
}

#[tokio::test]
async fn each_way_of_spoiling_leaves_its_mark_and_the_other_lines_whole() {
    let (sandbox, api) = fast().await;
    let id = ended_batch(&sandbox, &api, 4).await;
    let whole: Vec<String> = api.results(&id).await.body.lines().map(str::to_owned).collect();
    let spoilt = async |with: SpoiltLine| {
        let lines = lines_with(&sandbox, &api, &id, Fault::SpoilLines { every: 3, with }).await;
        assert!(lines.len() == 4 && [0, 1, 3].iter().all(|n| lines[*n] == whole[*n].as_bytes()));
        lines[2].clone()
    };
    let text = async |with| String::from_utf8(spoilt(with).await).unwrap();
    assert_eq!(text(SpoiltLine::Half).await, whole[2][..whole[2].len() / 2]);
    assert_eq!(text(SpoiltLine::Blank).await.trim(), "");
    assert_eq!(text(SpoiltLine::ByteOrderMark).await, format!("\u{feff}{}", whole[2]));
    assert!(String::from_utf8(spoilt(SpoiltLine::NotUtf8).await).is_err());
    assert!(text(SpoiltLine::LoneSurrogate).await.contains("\\ud800\""));
    assert!(text(SpoiltLine::Nul).await.contains("\\u0000\""));
    assert!(text(SpoiltLine::HugeNumber).await.contains("\"output_tokens\":18446744073709551616"));
    assert!(text(SpoiltLine::InfiniteNumber).await.contains("\"output_tokens\":1e999"));
    let deep = text(SpoiltLine::Deep(200)).await;
    assert!(deep.contains(&"[".repeat(200)) && serde_json::from_str::<Value>(&deep).is_err());
    assert!(text(SpoiltLine::Long(1_000_000)).await.len() > 1_000_000);
    for (with, place, now) in [
        (SpoiltLine::MissingCustomId, "/custom_id", None),
        (SpoiltLine::NullCustomId, "/custom_id", Some(Value::Null)),
        (SpoiltLine::ForeignCustomId, "/custom_id", Some(json!("nobody-sent-this"))),
        (SpoiltLine::MissingResult, "/result", None),
        (SpoiltLine::MissingOutcome, "/result/type", None),
        (SpoiltLine::UnknownOutcome, "/result/type", Some(json!("postponed"))),
        (SpoiltLine::NullMessage, "/result/message", Some(Value::Null)),
        (SpoiltLine::UnknownBlock, "/result/message/content/0/type", Some(json!("hologram"))),
        (SpoiltLine::NullContent, "/result/message/content", Some(Value::Null)),
        (SpoiltLine::UnknownStopReason, "/result/message/stop_reason", Some(json!("ran_out_of_ink"))),
        (SpoiltLine::NullStopReason, "/result/message/stop_reason", Some(Value::Null)),
        (SpoiltLine::NullUsage, "/result/message/usage", Some(Value::Null)),
        (SpoiltLine::MissingUsage, "/result/message/usage", None),
        (SpoiltLine::NullTokens, "/result/message/usage/output_tokens", Some(Value::Null)),
    ] {
        let original: Value = serde_json::from_str(&whole[2]).unwrap();
        assert!(original.pointer(place).is_some_and(|was| Some(was) != now.as_ref()), "{with:?}");
        let line: Value = serde_json::from_str(&text(with.clone()).await).unwrap();
        assert_eq!(line.pointer(place).cloned(), now, "{with:?}");
    }
    assert!(text(SpoiltLine::UnknownFields).await.matches("a_field_of_tomorrow").count() > 3);
    assert_eq!(text(SpoiltLine::NotAnObject).await, format!("[{}]", whole[2]));
    assert_eq!(PaidLedger::read(sandbox.ledger_path()).unwrap().len(), 4, "what was paid stays so");
}

#[tokio::test]
async fn a_spoilt_line_of_a_create_is_spoilt_in_every_download() {
    let (sandbox, api) = fast().await;
    let control = sandbox.control();
    let half = Fault::SpoilLines { every: 2, with: SpoiltLine::Half };
    let fault = control.inject(Operation::Create, When::Next, half);
    control.inject(Operation::Create, When::Next, Fault::MissingLines(1));
    let id = ended_batch(&sandbox, &api, 5).await;
    control.clear();
    let first = api.results(&id).await.body;
    assert_eq!(first, api.results(&id).await.body);
    assert_eq!(first.lines().count(), 4);
    assert_eq!(first.lines().filter(|line| serde_json::from_str::<Value>(line).is_err()).count(), 2);
    assert_eq!(fault.fired(), 4);
    assert_eq!(PaidLedger::read(sandbox.ledger_path()).unwrap().len(), 5);
}

#[tokio::test]
async fn lines_of_errors_have_no_answer_to_spoil_and_do_not_count() {
    let (sandbox, api) = fast().await;
    let control = sandbox.control();
    let failing = Fault::ErrorItems { error_type: "api_error".to_owned(), every: 1 };
    control.inject(Operation::Create, When::Next, failing);
    let id = ended_batch(&sandbox, &api, 2).await;
    let nul = control.inject(Operation::Results, When::Next, Fault::SpoilLines { every: 1, with: SpoiltLine::Nul });
    api.results(&id).await;
    assert_eq!(nul.fired(), 0);
    let null = Fault::SpoilLines { every: 1, with: SpoiltLine::NullError };
    let lines = lines_with(&sandbox, &api, &id, null).await;
    let line: Value = serde_json::from_slice(&lines[0]).unwrap();
    assert_eq!(line["result"]["error"]["error"], Value::Null);
}

#[tokio::test]
async fn the_order_changes_and_lines_of_others_stand_between() {
    let (sandbox, api) = fast().await;
    let id = ended_batch(&sandbox, &api, 6).await;
    let mut whole: Vec<Vec<u8>> = api.results(&id).await.body.lines().map(|line| line.as_bytes().to_vec()).collect();
    let mut other = lines_with(&sandbox, &api, &id, Fault::ReorderLines).await;
    assert_ne!(other, whole);
    other.sort();
    whole.sort();
    assert_eq!(other, whole);
    let mixed = lines_with(&sandbox, &api, &id, Fault::ForeignLines(2)).await;
    let foreign = mixed.iter().filter(|line| line.starts_with(b"{\"custom_id\":\"somebody-else-")).count();
    assert_eq!((mixed.len(), foreign), (8, 2));
}

#[tokio::test]
async fn a_download_is_reset_or_stalls_and_goes_on() {
    let (sandbox, api) = fast().await;
    let control = sandbox.control();
    let id = ended_batch(&sandbox, &api, 50).await;
    let whole = api.results(&id).await.body;
    let reset = control.inject(Operation::Results, When::Next, Fault::ResetResultsAt(500));
    let (body, error) = api.results_in_pieces(&id).await;
    assert!(error && whole[..500].starts_with(&body), "{} bytes", body.len());
    assert_eq!(reset.fired(), 1);
    let stall = Fault::StallResultsAt { bytes: 500, time: Duration::from_millis(50) };
    let stall = control.inject(Operation::Results, When::Next, stall);
    let begun = std::time::Instant::now();
    assert_eq!(api.results(&id).await.body, whole);
    assert!(begun.elapsed() >= Duration::from_millis(50) && stall.fired() == 1);
    let beyond = control.inject(Operation::Results, When::Next, Fault::EndResultsAt(whole.len()));
    assert_eq!((api.results(&id).await.body, beyond.fired()), (whole, 0));
}
