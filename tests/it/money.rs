//! What was spent is told to the nano-dollar, providers and accounts can be held back, and requests are tried again as they say.

use crate::flows::{Asking, request};
use crate::models::{Models, asking, batches, check_paid, until_batch};
use crate::retention::Errand;
use crate::support::{check, connect, database, eventually, failure, number, until_over, until_status};
use longhaul::testing::TestNode;
use longhaul::{
    BatchStatus, Client, Costs, CostsOf, Error, FailureCode, ModelRetry, Next, Node, Pausable, Reply, Result, Run,
    RunStatus, Workflow, workflow,
};
use longhaul_sandbox::provider::{Fault, Operation, When};
use std::time::Duration;

#[tokio::test(flavor = "multi_thread")]
async fn costs_are_told_by_run_tree_workflow_and_account() {
    let (db, models) = (database().await, Models::start().await);
    let node = Node::builder(db.url())
        .workflow(Asking::default())
        .workflow(Errand)
        .provider("claude", models.provider())
        .config(asking("a"))
        .start()
        .await
        .unwrap();
    let client = node.client();
    client.enqueue_many::<Asking>((0..5).map(|k| (format!("r{k}"), "twice".into())).collect()).await.unwrap();
    client.enqueue::<Errand>("tree", "go".into()).await.unwrap();
    until_over(&client).await;
    let mut conn = connect(&db).await;
    // The last batch settles after its answers were taken.
    eventually("all is settled", async || {
        (number(&mut conn, "select count(*) from longhaul.batches where status < 8").await == 0).then_some(())
    })
    .await;
    check_paid(&models, &mut conn).await;

    let paid = models.summary().nano_usd_batch as i64;
    let all = client.costs(CostsOf::Everything).await.unwrap();
    assert_eq!((all.total.items, all.total.nano_usd, all.total.unpriced, all.total.unused), (12, paid, 0, 0));
    assert!(all.lines.iter().all(|line| line.model.starts_with("claude-haiku-4-5")), "{:?}", all.lines);
    let of = async |of| client.costs(of).await.unwrap().total;
    let workflow = of(CostsOf::Workflow("asking".into())).await;
    let tree = of(CostsOf::Root("tree".into())).await;
    assert_eq!((workflow.items, tree.items), (10, 2));
    assert_eq!(workflow.nano_usd + tree.nano_usd, paid);
    assert_eq!(of(CostsOf::Workflow("errand".into())).await, tree, "the same sums in two ways");
    assert_eq!(of(CostsOf::Run("tree".into())).await.items, 0, "its branches have asked, not the run itself");
    let mut runs = 0;
    for k in 0..5 {
        runs += of(CostsOf::Run(format!("r{k}"))).await.nano_usd;
    }
    assert_eq!(runs, workflow.nano_usd);
    let account = client.accounts().await.unwrap().remove(0);
    assert_eq!(of(CostsOf::Account(account.id)).await, all.total);
    assert_eq!((account.spent_today, account.spent_this_month), (paid, paid));
    assert_eq!((account.provider.as_deref(), account.sender.as_deref()), (Some("claude"), Some("a")));
    let tomorrow = chrono::Utc::now().date_naive() + chrono::Days::new(1);
    for of in [CostsOf::Everything, CostsOf::Root("tree".into())] {
        let later = client.costs(Costs { of, since: Some(tomorrow) }).await.unwrap();
        assert_eq!(later.total, longhaul::CostSums::default());
    }
    let unknown = client.costs(CostsOf::Root("nobody".into())).await.unwrap_err();
    assert!(matches!(unknown, Error::UnknownRun(_)), "{unknown}");
    node.shutdown().await.unwrap();
    check(&db).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_paid_for_nobody_is_shown_apart() {
    let (db, models) = (database().await, Models::slow().await);
    let node = models.node(&db, &Asking::default()).await;
    let client = node.client();
    client.enqueue_many::<Asking>(vec![("a".into(), "q".into()), ("b".into(), "q".into())]).await.unwrap();
    let mut conn = connect(&db).await;
    until_batch(&mut conn, BatchStatus::Submitted).await;
    client.cancel("a").await.unwrap();
    models.control.batches().iter().for_each(|batch| assert!(models.control.finish(batch)));
    until_status(&client, "b", RunStatus::Completed).await;
    until_batch(&mut conn, BatchStatus::Settled).await;
    check_paid(&models, &mut conn).await;
    let total = client.costs(CostsOf::Everything).await.unwrap().total;
    assert_eq!((total.items, total.unused), (2, 1));
    let of_a = client.costs(CostsOf::Run("a".into())).await.unwrap().total;
    assert_eq!((of_a.unused, of_a.unused_nano_usd), (1, total.unused_nano_usd));
    assert!(of_a.nano_usd > 0 && of_a.nano_usd < total.nano_usd);
    node.shutdown().await.unwrap();
    check(&db).await;
}

async fn test_node(url: &str, models: &Models) -> TestNode {
    let provider = models.provider();
    let build =
        |b: longhaul::NodeBuilder| b.workflow(Asking::default()).provider("claude", provider).config(asking("a"));
    TestNode::start(url, build).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_paused_sends_nothing_until_it_is_resumed() {
    let (db, models) = (database().await, Models::start().await);
    let node = test_node(db.url(), &models).await;
    let client = node.client();
    let provider = Pausable::Provider("claude".into());
    client.pause_sends(&provider, "ada", "too dear").await.unwrap();
    client.enqueue::<Asking>("r", "q".into()).await.unwrap();
    until_status(&client, "r", RunStatus::Waiting).await;
    for _ in 0..3 {
        node.poll_once().await;
    }
    assert_eq!(models.control.seen(Operation::Create), 0);
    let why = client.explain("r").await.unwrap().to_string();
    assert!(why.contains("provider `claude` by ada: too dear"), "{why}");

    // Of the account too; one resumed is not both.
    let account = client.accounts().await.unwrap().remove(0);
    client.pause_sends(&Pausable::Account(account.id), "bob", "an audit").await.unwrap();
    assert!(client.resume_sends(&provider).await.unwrap());
    assert!(!client.resume_sends(&provider).await.unwrap(), "there is nothing to end");
    node.poll_once().await;
    assert_eq!(models.control.seen(Operation::Create), 0);
    let account = client.accounts().await.unwrap().remove(0);
    assert_eq!(account.paused.as_deref(), Some("an audit (bob)"));
    let why = client.explain("r").await.unwrap().to_string();
    assert!(why.contains("by bob: an audit"), "{why}");
    assert!(client.resume_sends(&Pausable::Account(account.id)).await.unwrap());
    until_status(&client, "r", RunStatus::Completed).await;
    assert!(client.pauses().await.unwrap().is_empty());
    let unknown = client.pause_sends(&Pausable::Account(99), "bob", "").await.unwrap_err();
    assert_eq!(unknown.code(), "unknown-account");
    node.shutdown().await.unwrap();
    check_paid(&models, &mut connect(&db).await).await;
    check(&db).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pause_stops_a_batch_that_is_being_made_up() {
    let (db, models) = (database().await, Models::start().await);
    let node = test_node(db.url(), &models).await;
    let client = node.client();
    eventually("the account is known", async || (client.accounts().await.unwrap().len() == 1).then_some(())).await;
    node.poll_once().await;
    // The sender has looked whether it may send, and is asking for the listing.
    let listed = models.control.seen(Operation::List);
    models.inject(Operation::List, When::Next, Fault::Hold);
    client.enqueue::<Asking>("r", "q".into()).await.unwrap();
    models.control.wait_for(Operation::List, listed + 1).await;
    client.pause_sends(&Pausable::Provider("claude".into()), "ada", "stop").await.unwrap();
    models.control.release_all();
    let mut conn = connect(&db).await;
    until_batch(&mut conn, BatchStatus::Abandoned).await;
    node.poll_once().await;
    assert_eq!(models.control.seen(Operation::Create), 0);
    assert_eq!(batches(&mut conn).await.len(), 1, "what is paused is not tried again");
    client.resume_sends(&Pausable::Provider("claude".into())).await.unwrap();
    until_status(&client, "r", RunStatus::Completed).await;
    node.shutdown().await.unwrap();
    check_paid(&models, &mut conn).await;
    check(&db).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_parked_account_is_resumed_without_a_new_node() {
    let (db, models) = (database().await, Models::start().await);
    let node = test_node(db.url(), &models).await;
    let client = node.client();
    let body = r#"{"type":"error","error":{"type":"billing_error","message":"the bill is not paid"}}"#;
    models.inject(
        Operation::Create,
        When::Always,
        Fault::Status { code: 402, body: Some(body.into()), headers: Vec::new() },
    );
    client.enqueue::<Asking>("r", "q".into()).await.unwrap();
    let account = eventually("the account is parked", async || {
        client.accounts().await.unwrap().into_iter().find(|account| account.parked.is_some())
    })
    .await;
    assert!(account.parked.unwrap().contains("not paid"));
    models.control.clear();
    assert!(client.resume_sends(&Pausable::Account(account.id)).await.unwrap());
    until_status(&client, "r", RunStatus::Completed).await;
    node.shutdown().await.unwrap();
    check_paid(&models, &mut connect(&db).await).await;
    check(&db).await;
}

/// Asks as its input says, by default with two attempts.
struct Patient;

#[workflow]
mod patient {
    use super::*;

    impl Workflow for Patient {
        const NAME: &'static str = "patient";
        const VERSION: u32 = 1;
        const MODEL_RETRY: Option<ModelRetry> = Some(ModelRetry { attempts: 2, backoff: Duration::from_millis(1) });
        type Input = String;
        type State = ();
        type Output = String;
        type Entry = step::ask;
    }

    #[step]
    async fn ask(run: &mut Run<Patient>) -> Result<Next<Patient>> {
        let body = request(run.id(), 1, if run.id() == "passing" { "overloaded twice" } else { "overloaded" });
        let retry = |attempts| ModelRetry { attempts, backoff: Duration::from_millis(1) };
        Ok(match run.input.as_str() {
            "converse" => run.converse("claude", body).then(step::answered),
            "converse once" => run.converse("claude", body).retry(retry(1)).then(step::answered),
            "never" => run.model("claude", body).retry(retry(0)).then(step::answered),
            "three" => run.model("claude", body).retry(retry(3)).then(step::answered),
            "long" => {
                let long = ModelRetry { attempts: 1, backoff: Duration::from_secs(3_601) };
                run.model("claude", body).retry(long).then(step::answered)
            }
            _ => run.model("claude", body).then(step::answered),
        })
    }

    #[step]
    async fn answered(_: &mut Run<Patient>, reply: Reply) -> Result<Next<Patient>> {
        Ok(Next::finish(reply.text()))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_is_tried_again_as_its_workflow_or_the_call_says() {
    let (db, models) = (database().await, Models::start().await);
    let client = Client::connect(db.url()).await.unwrap();
    let runs = [("default", 2), ("three", 3), ("converse", 2), ("converse once", 1), ("never", 0), ("long", 0)];
    for (what, _) in runs {
        client.enqueue::<Patient>(what.replace(' ', "-"), what.into()).await.unwrap();
    }
    client.enqueue::<Patient>("passing", "three".into()).await.unwrap();
    let node = Node::builder(db.url())
        .workflow(Patient)
        .provider("claude", models.provider())
        .config(asking("a"))
        .start()
        .await
        .unwrap();
    until_over(&client).await;
    let mut conn = connect(&db).await;
    for (what, attempts) in runs {
        let id = what.replace(' ', "-");
        let items: i64 = sqlx::query_scalar(
            "select count(*) from longhaul.batch_items i join longhaul.runs r on r.id = i.run where r.run_id = $1",
        )
        .bind(&id)
        .fetch_one(&mut conn)
        .await
        .unwrap();
        let (code, message) = failure::<Patient>(&client, &id).await;
        assert_eq!(items, attempts, "{what}: {message}");
        let expected = if attempts == 0 { FailureCode::LimitExceeded } else { FailureCode::ModelFailed };
        assert_eq!(code, expected, "{what}: {message}");
    }
    let passing = client.handle::<Patient>("passing").await.unwrap();
    assert_eq!(passing.output().await.unwrap(), "echo overloaded twice");
    node.shutdown().await.unwrap();
    check_paid(&models, &mut conn).await;
    check(&db).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_provider_never_works_on_goes_out_again_but_not_for_ever() {
    let (db, models) = (database().await, Models::start().await);
    models.inject(Operation::Create, When::Always, Fault::Expire { every: 1 });
    let config = longhaul::Config { linger: Duration::from_millis(5), ..asking("a") };
    let node = models.node_with(&db, &Asking::default(), config).await;
    let client = node.client();
    client.enqueue::<Asking>("r", "q".into()).await.unwrap();
    until_over(&client).await;
    let (code, message) = failure::<Asking>(&client, "r").await;
    assert_eq!(code, FailureCode::ModelFailed);
    assert!(message.contains("in 21 batches"), "{message}");
    assert_eq!(models.control.served(Operation::Create), 21);

    // An operator's retry begins anew.
    models.control.clear();
    client.retry("r").await.unwrap();
    until_status(&client, "r", RunStatus::Completed).await;
    node.shutdown().await.unwrap();
    check_paid(&models, &mut connect(&db).await).await;
    check(&db).await;
}
