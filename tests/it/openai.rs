//! OpenAI's Batch API as a provider: the whole way, adoption by metadata, results in two files, and two providers
//! in one node.

use crate::flows::Asking;
use crate::models::{Models, asking, check_paid, until_batch};
use crate::support::{check, connect, database, eventually, failure, number, until_over, until_status};
use longhaul::{
    BatchStatus, Client, Config, FailureCode, Next, Node, Reply, Result, Run, RunStatus, Tool, ToolCall, ToolResult,
    Workflow, workflow,
};
use longhaul_sandbox::postgres::testing::TestDatabase;
use longhaul_sandbox::provider::{
    Answer, Config as SandboxConfig, Dialect, Fault, Operation, RequestView, Script, SpoiltObject, When,
};
use serde_json::{Value, json};
use std::time::Duration;

/// Asks the provider `gpt`: its input is `kind|prompt`.
pub struct Gpt;

fn request(kind: &str, run: &str, prompt: &str) -> Value {
    let model = match kind.strip_prefix("model ") {
        Some(name) => name,
        None if kind == "mini" => "gpt-5-mini",
        None => "gpt-4o-mini",
    };
    match kind {
        "responses" => json!({"model": model, "input": prompt, "user": run}),
        _ => json!({"model": model, "messages": [{"role": "user", "content": prompt}], "user": run}),
    }
}

#[workflow]
mod gpt {
    use super::*;

    impl Workflow for Gpt {
        const NAME: &'static str = "gpt";
        const VERSION: u32 = 1;
        type Input = String;
        type State = ();
        type Output = String;
        type Entry = step::ask;
    }

    #[step]
    async fn ask(run: &mut Run<Gpt>) -> Result<Next<Gpt>> {
        let (kind, prompt) = run.input.split_once('|').unwrap_or(("chat", &run.input));
        match kind.strip_prefix("talk ") {
            None => Ok(run.model("gpt", request(kind, run.id(), prompt)).then(step::answered)),
            Some(kind) => {
                let mut request = request(kind, run.id(), prompt);
                request["tools"] = match kind {
                    "responses" => {
                        json!([{"type": "function", "name": "word_count", "parameters": {"type": "object"}}])
                    }
                    _ => {
                        json!([{"type": "function", "function": {"name": "word_count", "parameters": {"type": "object"}}}])
                    }
                };
                Ok(run.converse("gpt", request).then(step::answered))
            }
        }
    }

    #[step]
    async fn answered(_: &mut Run<Gpt>, reply: Reply) -> Result<Next<Gpt>> {
        let usage = reply.usage().unwrap_or_default();
        if usage.output_tokens == 0 {
            return Ok(Next::finish("no usage".into()));
        }
        Ok(Next::finish(format!("{} {}", reply.stop_reason().unwrap_or_default(), reply.text())))
    }
}

struct WordCount;

impl Tool for WordCount {
    const NAME: &'static str = "word_count";
    async fn call(&self, call: ToolCall) -> ToolResult {
        let input: Value = call.input.read().map_err(|e| e.to_string())?;
        let text = input["text"].as_str().ok_or("`text` is missing")?;
        Ok(text.split_whitespace().count().to_string())
    }
}

pub fn settings() -> SandboxConfig {
    SandboxConfig::openai().processing(Duration::from_millis(30))
}

pub async fn start() -> (TestDatabase, Models) {
    (database().await, Models::with(settings()).await)
}

async fn node_with(db: &TestDatabase, models: &Models, config: Config) -> Node {
    let builder = Node::builder(db.url()).workflow(Gpt).tool(WordCount).provider("gpt", models.openai());
    builder.config(config).start().await.unwrap()
}

pub async fn node(db: &TestDatabase, models: &Models) -> Node {
    node_with(db, models, asking("a")).await
}

pub async fn enqueue(db: &TestDatabase, inputs: impl IntoIterator<Item = String>) -> Client {
    let client = Client::connect(db.url()).await.unwrap();
    let runs = inputs.into_iter().enumerate().map(|(k, input)| (format!("r{k}"), input)).collect();
    for made in client.enqueue_many::<Gpt>(runs).await.unwrap() {
        made.unwrap();
    }
    client
}

pub fn questions(n: usize) -> impl Iterator<Item = String> {
    (0..n).map(|k| format!("chat|q{k}"))
}

/// All runs completed with their own answers, each paid once and as it is booked.
pub async fn all_well(db: &TestDatabase, models: &Models, runs: i64) {
    let client = Client::connect(db.url()).await.unwrap();
    until_over(&client).await;
    assert_eq!(client.counts().await.unwrap().completed, runs, "{:?}", client.counts().await.unwrap());
    settled(db, models).await;
    assert_eq!(models.summary().items_paid as i64, runs);
}

pub async fn settled(db: &TestDatabase, models: &Models) {
    let mut conn = connect(db).await;
    eventually("every batch is settled", async || {
        (number(&mut conn, "select count(*) from longhaul.batches where status < 8").await == 0).then_some(())
    })
    .await;
    check_paid(models, &mut conn).await;
    check(db).await;
}

async fn output(client: &Client, run: &str) -> String {
    client.handle::<Gpt>(run).await.unwrap().output().await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_travel_by_endpoint_and_model_and_come_back() {
    let (db, models) = start().await;
    let kinds = ["chat", "responses", "mini"];
    let client = enqueue(&db, (0..60).map(|k| format!("{}|q{k}", kinds[k % 3]))).await;
    let node = node(&db, &models).await;
    all_well(&db, &models, 60).await;
    assert_eq!(output(&client, "r0").await, "stop echo q0");
    assert_eq!(output(&client, "r1").await, "completed echo q1");
    assert_eq!(output(&client, "r2").await, "stop echo q2");
    let mut conn = connect(&db).await;
    assert_eq!(number(&mut conn, "select count(distinct batch_group) from longhaul.batches").await, 3);
    let mixed = "select count(*) from longhaul.batches b join longhaul.batch_items i on i.batch = b.id
        join longhaul.waits w on w.run = i.run and w.ordinal = i.wait where w.batch_group <> b.batch_group";
    assert_eq!(number(&mut conn, mixed).await, 0);
    let sent = number(&mut conn, "select count(*) from longhaul.batches").await;
    assert!(sent <= 12, "{sent} batches for three groups of twenty");
    assert_eq!(number(&mut conn, "select count(*) from longhaul.batch_items where nano_usd is null").await, 0);
    node.shutdown().await.unwrap();
}

/// Line ends between the tokens of a request would be two lines of a file.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_with_line_ends_is_one_line() {
    let (db, models) = (database().await, Models::start().await);
    let gpt = Models::with(settings()).await;
    let raw = format!("raw:{}", serde_json::to_string_pretty(&request("chat", "x", "two\nlines")).unwrap());
    let client = Client::connect(db.url()).await.unwrap();
    client.enqueue::<Asking>("r", raw).await.unwrap();
    // That workflow asks the provider `claude`, whoever that is.
    let builder = Node::builder(db.url()).workflow(Asking::default()).provider("claude", gpt.openai());
    let node = builder.config(asking("a")).start().await.unwrap();
    until_over(&client).await;
    assert_eq!(client.handle::<Asking>("r").await.unwrap().output().await.unwrap(), "echo two\nlines");
    assert_eq!((gpt.summary().items_paid, models.summary().items_paid), (1, 0));
    node.shutdown().await.unwrap();
}

/// The listing shows it late, beside somebody else's of the same number. There is no guess, and no proof is waited for.
#[tokio::test(flavor = "multi_thread")]
async fn a_create_without_an_answer_is_found_by_its_metadata() {
    let (db, models) = (database().await, Models::with(settings().processing(Duration::MAX)).await);
    models.inject(Operation::Create, When::Nth(1), Fault::ForeignBatch);
    models.inject(Operation::Create, When::Nth(1), Fault::AcceptThenCut);
    models.inject(Operation::Create, When::Nth(1), Fault::ListLag(Duration::from_millis(500)));
    models.inject(Operation::List, When::From(1), Fault::SpoilObject(SpoiltObject::Reversed));
    enqueue(&db, questions(7)).await;
    let node = node(&db, &models).await;
    let mut conn = connect(&db).await;
    until_batch(&mut conn, BatchStatus::Ambiguous).await;
    until_batch(&mut conn, BatchStatus::Submitted).await;
    // It is known to be ours before any result is there.
    let sure =
        "select count(*) from longhaul.batches where adopted_at is not null and verified_at is not null and status = 5";
    assert_eq!(number(&mut conn, sure).await, 1);
    models.control.batches().iter().for_each(|id| assert!(models.control.finish(id)));
    all_well(&db, &models, 7).await;
    assert_eq!(models.control.seen(Operation::Create), 1);
    assert_eq!(number(&mut conn, "select count(*) from longhaul.foreign_batches").await, 0);
    let progress = node.progress();
    assert_eq!((progress.ambiguous_creates, progress.adopted), (1, 1), "{progress:?}");
    node.shutdown().await.unwrap();
}

/// While one send is in doubt, others of the same number go on.
#[tokio::test(flavor = "multi_thread")]
async fn a_create_that_never_arrived_is_sent_again_after_the_quarantine() {
    let (db, models) = start().await;
    models.inject(Operation::Create, When::Nth(1), Fault::Cut);
    let config = Config { send_limit: Duration::from_secs(2), quarantine: Duration::from_millis(500), ..asking("a") };
    let client = enqueue(&db, questions(1)).await;
    let node = node_with(&db, &models, config).await;
    let mut conn = connect(&db).await;
    until_batch(&mut conn, BatchStatus::Ambiguous).await;
    client.enqueue::<Gpt>("s", "chat|meanwhile".into()).await.unwrap();
    until_status(&client, "s", RunStatus::Completed).await;
    assert_eq!(number(&mut conn, "select count(*) from longhaul.batches where status = 4").await, 1);
    all_well(&db, &models, 2).await;
    assert_eq!(number(&mut conn, "select count(*) from longhaul.batches where status = 9").await, 1);
    node.shutdown().await.unwrap();
}

/// It was given up on, sent again, and then shows up: booked, and nothing is asked twice for its sake.
#[tokio::test(flavor = "multi_thread")]
async fn a_batch_that_shows_up_late_is_booked() {
    let (db, models) = start().await;
    models.inject(Operation::Create, When::Nth(1), Fault::AcceptThenCut);
    models.inject(Operation::Create, When::Nth(1), Fault::LateCommit(Duration::from_secs(3)));
    let config = Config {
        send_limit: Duration::from_millis(400),
        quarantine: Duration::from_millis(200),
        late_sweep: Duration::from_millis(200),
        ..asking("a")
    };
    let client = enqueue(&db, questions(3)).await;
    let node = node_with(&db, &models, config).await;
    until_over(&client).await;
    let mut conn = connect(&db).await;
    eventually("the late one is booked", async || {
        (number(&mut conn, "select count(*) from longhaul.batch_items where status = 10").await == 3).then_some(())
    })
    .await;
    eventually("and settled", async || {
        (number(&mut conn, "select count(*) from longhaul.batches where status = 8").await == 2).then_some(())
    })
    .await;
    assert_eq!((client.counts().await.unwrap().completed, models.summary().items_paid), (3, 6));
    check(&db).await;
    node.shutdown().await.unwrap();
}

/// An upload that fails in whatever way is in no batch: it is simply done again.
#[tokio::test(flavor = "multi_thread")]
async fn an_upload_that_fails_leaves_no_doubt() {
    let (db, models) = start().await;
    for (n, fault) in [Fault::Cut, Fault::AcceptThenCut, Fault::status(503), Fault::SpoilObject(SpoiltObject::Empty)]
        .into_iter()
        .enumerate()
    {
        models.inject(Operation::Upload, When::Nth(n + 1), fault);
    }
    models.inject(Operation::Upload, When::Nth(5), Fault::rate_limited(1));
    enqueue(&db, questions(5)).await;
    let node = node(&db, &models).await;
    let mut conn = connect(&db).await;
    for n in 1..=5 {
        models.control.wait_for(Operation::Upload, n).await;
        // A refusal is left alone for five seconds, which are not waited for here.
        eventually("it is given back", async || {
            (number(&mut conn, "select count(*) from longhaul.batches where status = 9").await == n as i64)
                .then_some(())
        })
        .await;
        sqlx::query("update longhaul.accounts set not_before = null").execute(&mut conn).await.unwrap();
    }
    all_well(&db, &models, 5).await;
    assert_eq!((models.control.seen(Operation::Upload), models.control.seen(Operation::Create)), (6, 1));
    assert_eq!(node.progress().ambiguous_creates, 0);
    node.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_too_large_is_halved() {
    let (db, models) = (database().await, Models::with(settings().max_bytes(3_000)).await);
    enqueue(&db, questions(40)).await;
    let node = node(&db, &models).await;
    all_well(&db, &models, 40).await;
    node.shutdown().await.unwrap();
}

/// Both files of a batch that expired are read: what was answered is paid, and the rest goes out again.
#[tokio::test(flavor = "multi_thread")]
async fn what_expired_goes_out_again_and_what_was_answered_does_not() {
    let (db, models) = start().await;
    models.inject(Operation::Create, When::Nth(1), Fault::Expire { every: 2 });
    enqueue(&db, questions(10)).await;
    let node = node(&db, &models).await;
    all_well(&db, &models, 10).await;
    let mut conn = connect(&db).await;
    assert_eq!(number(&mut conn, "select count(*) from longhaul.batch_items where status = 5").await, 5);
    node.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn outcomes_are_told_apart_line_by_line() {
    let (db, models) = start().await;
    models.inject(Operation::Create, When::Nth(1), Fault::CancelItems { every: 5 });
    let prompts = ["fine", "invalid", "overloaded twice", "overloaded", "well"];
    let client = enqueue(&db, prompts.iter().map(|prompt| format!("chat|{prompt}"))).await;
    let node = node_with(&db, &models, Config { model_attempts: 3, ..asking("a") }).await;
    until_over(&client).await;
    for (k, prompt) in prompts.iter().enumerate() {
        let run = format!("r{k}");
        match *prompt {
            "invalid" | "overloaded" => {
                let (code, why) = failure::<Gpt>(&client, &run).await;
                assert_eq!(code, FailureCode::ModelFailed);
                let want = if *prompt == "invalid" { "400: invalid_request_error: no such thing" } else { "500: " };
                assert!(why.starts_with(want), "{why}");
            }
            prompt => assert_eq!(output(&client, &run).await, format!("stop echo {prompt}")),
        }
    }
    settled(&db, &models).await;
    let mut conn = connect(&db).await;
    let tries = "select count(*) from longhaul.batch_items where status = 4";
    assert_eq!(number(&mut conn, tries).await, 1 + 2 + 3, "one refusal, and errors that were tried again");
    node.shutdown().await.unwrap();
}

/// Nothing succeeded: there is no output file at all.
#[tokio::test(flavor = "multi_thread")]
async fn a_batch_may_have_an_error_file_only() {
    let (db, models) = start().await;
    let client = enqueue(&db, (0..4).map(|_| "chat|invalid".to_owned())).await;
    let node = node(&db, &models).await;
    until_over(&client).await;
    assert_eq!(client.counts().await.unwrap().failed, 4);
    settled(&db, &models).await;
    assert_eq!(models.summary().items_paid, 0);
    node.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn results_that_are_not_named_yet_are_asked_for_again() {
    let (db, models) = start().await;
    for (n, spoilt) in [SpoiltObject::EmptyResults, SpoiltObject::NullResults].into_iter().enumerate() {
        models.inject(Operation::Retrieve, When::Nth(n + 2), Fault::SpoilObject(spoilt));
    }
    models.inject(Operation::Retrieve, When::Nth(5), Fault::SpoilObject(SpoiltObject::UnknownStatus));
    models.inject(Operation::Retrieve, When::Nth(6), Fault::SpoilObject(SpoiltObject::UnknownFields));
    enqueue(&db, questions(6)).await;
    let node = node(&db, &models).await;
    all_well(&db, &models, 6).await;
    node.shutdown().await.unwrap();
}

/// A half expired, so that there are two files, and either breaks anywhere.
#[tokio::test(flavor = "multi_thread")]
async fn results_in_two_files_may_break_at_any_byte() {
    let (db, models) = start().await;
    models.inject(Operation::Create, When::Nth(1), Fault::Expire { every: 2 });
    let faults = [
        Fault::CutResultsAt(0),
        Fault::CutResultsAt(700),
        Fault::EndResultsAt(1),
        Fault::EndResultsAt(1_100),
        Fault::NotFoundFlap,
        Fault::DuplicateLines,
        Fault::ReorderLines,
    ];
    for (n, fault) in faults.into_iter().enumerate() {
        models.inject(Operation::Results, When::Nth(n + 1), fault);
    }
    enqueue(&db, questions(8)).await;
    let node = node(&db, &models).await;
    all_well(&db, &models, 8).await;
    node.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_that_nobody_waits_for_is_canceled() {
    let (db, models) = (database().await, Models::with(settings().processing(Duration::MAX)).await);
    let client = enqueue(&db, questions(3)).await;
    let node = node(&db, &models).await;
    let mut conn = connect(&db).await;
    until_batch(&mut conn, BatchStatus::Submitted).await;
    for k in 0..3 {
        client.cancel(&format!("r{k}")).await.unwrap();
    }
    models.control.wait_served(Operation::Cancel, 1).await;
    models.control.batches().iter().for_each(|id| assert!(models.control.finish(id)));
    settled(&db, &models).await;
    assert_eq!(number(&mut conn, "select count(*) from longhaul.batch_items where status = 6").await, 3);
    assert_eq!(models.summary().items_paid, 0);
    node.shutdown().await.unwrap();
}

/// The model asks for the tool until it has heard of it.
fn with_a_tool(request: &RequestView<'_>) -> Answer {
    match request.tool_results().first() {
        None => Answer::tool_use("call_1", "word_count", json!({"text": "peace and trade"})),
        Some(count) => Answer::text(format!("{count} words")),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conversation_with_tools_goes_on_at_both_endpoints() {
    let (db, models) = (database().await, Models::answering(settings().responder(with_a_tool)).await);
    let client = enqueue(&db, ["talk chat|count", "talk responses|count"].map(str::to_owned)).await;
    let node = node(&db, &models).await;
    until_over(&client).await;
    assert_eq!(output(&client, "r0").await, "stop 3 words");
    assert_eq!(output(&client, "r1").await, "completed 3 words");
    settled(&db, &models).await;
    assert_eq!(models.summary().items_paid, 4);
    node.shutdown().await.unwrap();
}

/// Two providers in one node: each run goes to its own, and each ledger is the tables' part of it.
#[tokio::test(flavor = "multi_thread")]
async fn two_providers_in_one_node() {
    let (db, claude) = (database().await, Models::start().await);
    let gpt = Models::with(settings()).await;
    gpt.inject(Operation::Create, When::Nth(1), Fault::AcceptThenCut);
    claude.inject(Operation::Create, When::Nth(1), Fault::AcceptThenCut);
    let client = enqueue(&db, questions(12)).await;
    for k in 0..12 {
        client.enqueue::<Asking>(&format!("a{k}"), format!("q{k}")).await.unwrap();
    }
    let builder = Node::builder(db.url()).workflow(Gpt).workflow(Asking::default());
    let builder = builder.provider("claude", claude.provider()).provider("gpt", gpt.openai());
    let node = builder.config(asking("a")).start().await.unwrap();
    until_over(&client).await;
    assert_eq!(client.counts().await.unwrap().completed, 24);
    let mut conn = connect(&db).await;
    eventually("every batch is settled", async || {
        (number(&mut conn, "select count(*) from longhaul.batches where status < 8").await == 0).then_some(())
    })
    .await;
    let booked: Vec<(String, i64, i64)> = sqlx::query_as(
        "select a.kind, count(*), sum(i.nano_usd)::bigint from longhaul.batch_items i
         join longhaul.batches b on b.id = i.batch join longhaul.accounts a on a.id = b.account
         where i.status = 3 group by a.kind order by a.kind",
    )
    .fetch_all(&mut conn)
    .await
    .unwrap();
    let paid = |models: &Models| (models.summary().items_paid as i64, models.summary().nano_usd_batch as i64);
    let of = |kind: &str, (items, cost)| (kind.to_owned(), items, cost);
    assert_eq!(booked, [of("anthropic", paid(&claude)), of("openai", paid(&gpt))]);
    assert_eq!((paid(&claude).0, paid(&gpt).0), (12, 12));
    check(&db).await;
    node.shutdown().await.unwrap();
}

/// All faults that heal, at once: it takes longer and may cost more, but ends, and each cost is booked.
#[tokio::test(flavor = "multi_thread")]
async fn a_mixture_of_everything_that_goes_wrong_ends() {
    let (db, models) = (database().await, Models::with(settings().script(Script::all(Dialect::OpenAi, 11))).await);
    let config = Config {
        send_limit: Duration::from_secs(1),
        quarantine: Duration::from_millis(500),
        missing_after: Duration::from_millis(500),
        model_attempts: 20,
        ..asking("a")
    };
    let client = enqueue(&db, questions(40)).await;
    let node = node_with(&db, &models, config).await;
    let mut conn = connect(&db).await;
    eventually("all complete", async || {
        // What parks the account or slows it down is over at once here.
        sqlx::query("update longhaul.accounts set parked = null, not_before = null").execute(&mut conn).await.unwrap();
        (client.counts().await.unwrap().completed == 40).then_some(())
    })
    .await;
    assert!(models.control.faults().iter().any(|rule| rule.fired > 0), "nothing went wrong");
    check(&db).await;
    node.shutdown().await.unwrap();
}
