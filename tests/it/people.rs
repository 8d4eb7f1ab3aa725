//! Waits that are no batch: people, other services, time; tools and conversations; halting and canceling.

use crate::models::Models;
use crate::support::{check, config, connect, database, eventually, execute, number, until_over, until_status};
use longhaul::testing::TestNode;
use longhaul::{Canceled, Error, EventType, Next, Node, Reply, Result, Run, RunStatus, StepError, Workflow, workflow};
use longhaul::{Tool, ToolCall, ToolResult, ToolResultBlock};
use longhaul_sandbox::postgres::testing::TestDatabase;
use longhaul_sandbox::provider::{Answer, Config as SandboxConfig, Fault, Operation, Sandbox, When};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::time::Duration;

const DAY: Duration = Duration::from_secs(86_400);

#[derive(Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub enum Verdict {
    Keep,
    Relabel(String),
}

pub struct Desk;

#[workflow]
mod desk {
    use super::*;

    impl Workflow for Desk {
        const NAME: &'static str = "desk";
        const VERSION: u32 = 1;
        type Input = String;
        type State = ();
        type Output = String;
        type Entry = step::open;
    }

    #[step]
    async fn open(run: &mut Run<Desk>) -> Result<Next<Desk>> {
        match run.input.as_str() {
            "human" => Ok(run
                .human::<Verdict>("Tone?")
                .context(&json!({"year": 1790, "nul": "\0"}))
                .carry(7)
                .then(step::judged)),
            "human for a day" => {
                Ok(run.human::<Verdict>("Tone?").or_after(DAY, Verdict::Keep).carry(8).then(step::judged))
            }
            "external" => Ok(run.external::<String>("the scan").then(step::told)),
            "sleep" => Ok(run.sleep(DAY).then(step::slept)),
            "halt" => Ok(run.call(step::deep, ()).then(step::told)),
            "converse" => {
                let request = json!({"model": "m", "max_tokens": 10_000, "messages": [{"role": "user", "content": "count"}],
                    "tools": [{"name": "word_count", "input_schema": {"type": "object"}}]});
                Ok(run.converse("claude", request).then(step::replied))
            }
            other => Err(StepError::fatal(other.to_owned())),
        }
    }
    #[step]
    async fn judged(_: &mut Run<Desk>, (verdict, carried): (Verdict, i64)) -> Result<Next<Desk>> {
        Ok(Next::finish(format!("{verdict:?} {carried}")))
    }
    #[step]
    async fn told(_: &mut Run<Desk>, word: String) -> Result<Next<Desk>> {
        Ok(Next::finish(format!("told {word}")))
    }
    #[step]
    async fn slept(_: &mut Run<Desk>) -> Result<Next<Desk>> {
        Ok(Next::finish("slept".into()))
    }
    #[step]
    async fn deep(_: &mut Run<Desk>) -> Result<Next<Desk>> {
        Ok(Next::halt("halted".into()))
    }
    #[step]
    async fn replied(run: &mut Run<Desk>, reply: Reply) -> Result<Next<Desk>> {
        let wanted = |name: &str| longhaul::ToolUse {
            id: name.to_owned(),
            name: name.to_owned(),
            input: longhaul::JsonText::null(),
        };
        let uses = vec![wanted("missing"), wanted("eager")];
        Ok(run.tools(uses).carry(reply.text()).then(step::used))
    }
    #[step]
    async fn used(_: &mut Run<Desk>, (results, text): (Vec<ToolResultBlock>, String)) -> Result<Next<Desk>> {
        Ok(Next::finish(format!("{text}; {}; {}", results[0].content, results[1].content)))
    }
}

struct WordCount;

impl Tool for WordCount {
    const NAME: &'static str = "word_count";
    async fn call(&self, call: ToolCall) -> ToolResult {
        let input: serde_json::Value = call.input.read().map_err(|e| e.to_string())?;
        match input["text"].as_str() {
            Some("panic") => panic!("as told"),
            Some(text) => Ok(format!("{} words, {}", text.split_whitespace().count(), call.id)),
            None => Err("`text` is missing".into()),
        }
    }
}

/// Panics before there is a future.
struct Eager;

impl Tool for Eager {
    const NAME: &'static str = "eager";
    fn call(&self, call: ToolCall) -> impl Future<Output = ToolResult> + Send {
        assert!(call.id.is_empty(), "as told");
        async { Ok(String::new()) }
    }
}

async fn node(db: &TestDatabase) -> Node {
    Node::builder(db.url()).workflow(Desk).config(config("a")).start().await.unwrap()
}

async fn enqueue(node: &Node, what: &str) -> longhaul::RunHandle<Desk> {
    node.client().enqueue::<Desk>(what, what.into()).await.unwrap()
}

async fn kinds(node: &Node, run: &str) -> Vec<EventType> {
    node.client().events(run).await.unwrap().iter().map(|e| e.kind).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_answers_and_the_answer_is_checked_first() {
    let db = database().await;
    let node = node(&db).await;
    let client = node.client();
    let run = enqueue(&node, "human").await;
    until_status(&client, "human", RunStatus::Waiting).await;

    let question = client.question("human").await.unwrap();
    assert_eq!((question["prompt"].as_str(), question["context"]["year"].as_i64()), (Some("Tone?"), Some(1790)));
    let wrong = client.answer("human", "ann", &json!({"Relabel": 3})).await.unwrap_err();
    assert_eq!(wrong.code(), "answer-mismatch");
    client.answer("human", "ann", &Verdict::Relabel("solemn".into())).await.unwrap();
    assert_eq!(run.output().await.unwrap(), r#"Relabel("solemn") 7"#);
    let again = client.answer("human", "bob", &Verdict::Keep).await.unwrap_err();
    assert_eq!(again.code(), "run-terminal");
    assert!(kinds(&node, "human").await.contains(&EventType::HumanAnswered));
    check(&db).await;
    node.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn of_twenty_answers_one_counts_and_the_others_hear_so() {
    let db = database().await;
    let node = node(&db).await;
    let client = node.client();
    enqueue(&node, "external").await;
    until_status(&client, "external", RunStatus::Waiting).await;
    let answers = (0..20).map(|k| {
        let client = client.clone();
        async move { client.answer("external", "scanner", &format!("page {k}")).await }
    });
    let answers: Vec<_> = futures::future::join_all(answers).await;
    assert_eq!(answers.iter().filter(|a| a.is_ok()).count(), 1);
    for refused in answers.into_iter().filter_map(std::result::Result::err) {
        assert!(matches!(refused.code(), "already-answered" | "run-terminal" | "not-waiting"), "{refused}");
    }
    until_over(&client).await;
    let mut conn = connect(&db).await;
    assert_eq!(number(&mut conn, "select count(*) from longhaul.answers").await, 1);
    check(&db).await;
    node.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn time_wakes_sleepers_and_answers_for_people_who_did_not() {
    let db = database().await;
    let test = TestNode::start(db.url(), |b| b.workflow(Desk).config(config("a"))).await.unwrap();
    let (asked, asleep) = (enqueue(&test, "human for a day").await, enqueue(&test, "sleep").await);
    test.run_until_quiescent(Duration::from_secs(30)).await.unwrap();
    for run in ["human for a day", "sleep"] {
        assert_eq!(test.client().run(run).await.unwrap().status, RunStatus::Waiting, "{run}");
    }
    test.advance(DAY + Duration::from_secs(1)).await.unwrap();
    assert_eq!(asked.output().await.unwrap(), "Keep 8");
    assert_eq!(asleep.output().await.unwrap(), "slept");
    assert!(kinds(&test, "human for a day").await.contains(&EventType::HumanExpired));
    assert!(kinds(&test, "sleep").await.contains(&EventType::TimerFired));
    let late = test.client().answer("human for a day", "ann", &Verdict::Keep).await.unwrap_err();
    assert_eq!(late.code(), "run-terminal");
    check(&db).await;
    test.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn halting_drops_the_callers() {
    let db = database().await;
    let node = node(&db).await;
    assert_eq!(enqueue(&node, "halt").await.output().await.unwrap(), "halted");
    let last = node.client().events("halt").await.unwrap().pop().unwrap();
    assert_eq!(last.kind, EventType::RunCompleted);
    assert!(last.payload.contains(r#""dropped":1"#), "{}", last.payload);
    check(&db).await;
    node.shutdown().await.unwrap();
}

/// Asks for the tool three times: well, wrongly, and so that it panics; then says what it was told.
fn counting(request: &longhaul_sandbox::provider::RequestView) -> Answer {
    let turns = request.messages().len();
    let input = match turns {
        1 => json!({"text": "peace and trade"}),
        3 => json!({"words": 1}),
        5 => json!({"text": "panic"}),
        _ => return Answer::text(format!("{:?}", request.messages())),
    };
    Answer::tool_use(format!("use-{turns}"), "word_count", input)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conversation_is_a_loop_of_durable_waits() {
    let db = database().await;
    let sandbox = SandboxConfig::default().processing(Duration::from_millis(20)).responder(counting);
    let sandbox = Sandbox::start(sandbox).await.unwrap();
    let provider = longhaul::provider::anthropic::Anthropic::new(longhaul::provider::anthropic::ApiKey::new("k"))
        .unwrap()
        .base_url(sandbox.base_url());
    let node = Node::builder(db.url())
        .workflow(Desk)
        .tool(WordCount)
        .tool(Eager)
        .provider("claude", provider)
        .config(config("a"))
        .start()
        .await
        .unwrap();
    let output = enqueue(&node, "converse").await.output().await.unwrap();
    for said in [
        "3 words, converse:",
        "`text` is missing",
        "the tool `word_count` panicked",
        "there is no tool `missing`",
        "`eager` panicked",
    ] {
        assert!(output.contains(said), "{said} is not in {output}");
    }
    let kinds = kinds(&node, "converse").await;
    assert_eq!(kinds.iter().filter(|k| **k == EventType::ModelAsked).count(), 4);
    assert_eq!(kinds.iter().filter(|k| **k == EventType::ToolsCompleted).count(), 4);
    check(&db).await;
    node.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_says_what_it_came_to() {
    let db = database().await;
    let node = node(&db).await;
    let client = node.client();
    let run = enqueue(&node, "sleep").await;
    until_status(&client, "sleep", RunStatus::Waiting).await;
    assert_eq!(client.cancel("sleep").await.unwrap(), Canceled::Canceled(RunStatus::Waiting));
    assert_eq!(client.cancel("sleep").await.unwrap(), Canceled::AlreadyTerminal(RunStatus::Canceled));
    assert!(matches!(run.output().await, Err(Error::NoOutput { status: RunStatus::Canceled, .. })));
    assert!(matches!(client.cancel("nobody").await, Err(Error::UnknownRun(_))));
    check(&db).await;
    node.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_arrives_for_a_canceled_run_is_booked_and_changes_nothing() {
    let db = database().await;
    let models = Models::slow().await;
    let provider = models.provider();
    let node =
        Node::builder(db.url()).workflow(Desk).provider("claude", provider).config(config("a")).start().await.unwrap();
    enqueue(&node, "converse").await;
    let mut conn = connect(&db).await;
    eventually("the request is at the provider", async || {
        (number(&mut conn, "select count(*) from longhaul.waits where status = 3").await == 1).then_some(())
    })
    .await;
    // The batch, which nobody waits for any more, cannot be stopped in time.
    models.inject(Operation::Cancel, When::Always, Fault::status(500));
    assert_eq!(node.client().cancel("converse").await.unwrap(), Canceled::Canceled(RunStatus::Waiting));
    for batch in models.control.batches() {
        models.control.finish(&batch);
    }
    eventually("the item is booked", async || {
        (number(&mut conn, "select count(*) from longhaul.batch_items where status = 10").await == 1).then_some(())
    })
    .await;
    assert_eq!(node.client().run("converse").await.unwrap().status, RunStatus::Canceled);
    check(&db).await;
    node.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_run_is_set_going_again() {
    let db = database().await;
    let node = node(&db).await;
    let client = node.client();
    enqueue(&node, "nonsense").await;
    until_status(&client, "nonsense", RunStatus::Failed).await;
    assert_eq!(client.retry("nonsense").await.unwrap(), RunStatus::Runnable);
    // It fails again, in the same way: nothing of the first end is left over.
    eventually("it has failed twice", async || {
        let failed = kinds(&node, "nonsense").await.iter().filter(|k| **k == EventType::RunFailed).count();
        (failed == 2).then_some(())
    })
    .await;
    assert!(kinds(&node, "nonsense").await.contains(&EventType::RunRetried));
    enqueue(&node, "sleep").await;
    until_status(&client, "sleep", RunStatus::Waiting).await;
    assert_eq!(client.retry("sleep").await.unwrap_err().code(), "not-retryable");
    until_status(&client, "nonsense", RunStatus::Failed).await;
    check(&db).await;
    node.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_failed_for_good_goes_out_again() {
    let db = database().await;
    let refuse = std::sync::atomic::AtomicBool::new(true);
    let answer = move |_: &longhaul_sandbox::provider::RequestView<'_>| match refuse
        .swap(false, std::sync::atomic::Ordering::Relaxed)
    {
        true => Answer::error("invalid_request_error", "not today"),
        false => Answer::text("today"),
    };
    let sandbox = SandboxConfig::default().processing(Duration::from_millis(20)).responder(answer);
    let sandbox = Sandbox::start(sandbox).await.unwrap();
    let provider = longhaul::provider::anthropic::Anthropic::new(longhaul::provider::anthropic::ApiKey::new("k"))
        .unwrap()
        .base_url(sandbox.base_url());
    let node =
        Node::builder(db.url()).workflow(Desk).provider("claude", provider).config(config("a")).start().await.unwrap();
    let run = enqueue(&node, "converse").await;
    until_status(&node.client(), "converse", RunStatus::Failed).await;
    assert!(node.client().explain("converse").await.unwrap().to_string().contains("not today"));
    assert_eq!(node.client().retry("converse").await.unwrap(), RunStatus::Waiting);
    assert!(run.output().await.unwrap().starts_with("today"));
    check(&db).await;
    node.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn explain_tells_of_a_person_a_sleeper_and_a_node_that_is_missing() {
    let db = database().await;
    let node = node(&db).await;
    let client = node.client();
    enqueue(&node, "human").await;
    enqueue(&node, "sleep").await;
    for run in ["human", "sleep"] {
        until_status(&client, run, RunStatus::Waiting).await;
    }
    let human = client.explain("human").await.unwrap().to_string();
    assert!(human.contains("a person: Tone?") && human.contains("`longhaul answer`"), "{human}");
    let sleep = client.explain("sleep").await.unwrap().to_string();
    assert!(sleep.contains("for a moment in time"), "{sleep}");
    node.shutdown().await.unwrap();
    let client = longhaul::Client::connect(db.url()).await.unwrap();
    client.enqueue::<Desk>("alone", "human".into()).await.unwrap();
    let alone = client.explain("alone").await.unwrap().to_string();
    assert!(alone.contains("no node is alive"), "{alone}");
    assert_eq!(client.explain("nobody").await.unwrap_err().code(), "unknown-run");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_that_crosses_a_wait_ends_that_wait_too() {
    let db = database().await;
    let client = longhaul::Client::connect(db.url()).await.unwrap();
    client.enqueue::<Desk>("r", "sleep".into()).await.unwrap();
    // A transaction that suspends the run on a new wait, and is not committed yet.
    let mut suspending = connect(&db).await;
    execute(
        &mut suspending,
        "begin;
         update longhaul.runs set status = 3, ready_at = null, wait = 0;
         insert into longhaul.waits (run, ordinal, kind, status, queued_at, bytes, due_at)
         select id, 0, 6, 1, longhaul.now(), 4, longhaul.now() + interval '1 day' from longhaul.runs",
    )
    .await;
    let canceling = tokio::spawn({
        let client = client.clone();
        async move { client.cancel("r").await }
    });
    let mut conn = connect(&db).await;
    eventually("the cancel waits for it", async || {
        let waiting = "select count(*) from pg_stat_activity where datname = current_database()
            and wait_event_type = 'Lock' and query like '%longhaul.cancel_orders%'";
        (number(&mut conn, waiting).await == 1).then_some(())
    })
    .await;
    execute(&mut suspending, "commit").await;
    assert_eq!(canceling.await.unwrap().unwrap(), Canceled::Canceled(RunStatus::Waiting));
    let ended = "select count(*) from longhaul.waits where status = 8 and due_at is null and queued_at is null";
    assert_eq!(number(&mut conn, ended).await, 1);
}
