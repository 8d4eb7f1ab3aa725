//! Records of what is over are removed after their time, a whole root at once; what has a reason to stay stays.

use crate::models::{Models, asking, check_paid};
use crate::support::{check, connect, database, eventually, execute, number};
use longhaul::testing::TestNode;
use longhaul::{Client, Error, Next, Reply, Result, Run, RunStatus, StepError, Workflow, workflow};
use longhaul_sandbox::postgres::testing::TestDatabase;
use serde_json::json;
use sqlx::PgConnection;
use std::time::Duration;

const DAY: Duration = Duration::from_secs(86_400);

/// Asks in two branches; or fails; or waits for somebody in one of two branches.
pub struct Errand;

#[workflow]
mod errand {
    use super::*;

    impl Workflow for Errand {
        const NAME: &'static str = "errand";
        const VERSION: u32 = 1;
        type Input = String;
        type State = i64;
        type Output = String;
        type Entry = step::open;
    }

    #[step]
    async fn open(run: &mut Run<Errand>) -> Result<Next<Errand>> {
        run.state = 1;
        let kinds: Vec<String> = match run.input.as_str() {
            "fail" => return Err(StepError::fatal("as asked")),
            "wait" => vec!["mail".into(), "ask".into()],
            _ => vec!["ask".into(), "ask".into()],
        };
        Ok(run.fork_each(step::one, &kinds).join(step::done))
    }
    #[step]
    async fn one(run: &mut Run<Errand>, kind: String) -> Result<Next<Errand, String>> {
        if kind == "mail" {
            return Ok(run.external::<String>("mail").then(step::arrived));
        }
        let content = format!("greet {}", run.id());
        let request =
            json!({"model": "claude-haiku-4-5", "max_tokens": 9, "messages": [{"role": "user", "content": content}]});
        Ok(run.model("claude", request).then(step::heard))
    }
    #[step]
    async fn arrived(_: &mut Run<Errand>, said: String) -> Result<Next<Errand, String>> {
        Ok(Next::finish(said))
    }
    #[step]
    async fn heard(_: &mut Run<Errand>, reply: Reply) -> Result<Next<Errand, String>> {
        Ok(Next::finish(reply.text()))
    }
    #[step]
    async fn done(_: &mut Run<Errand>, said: Vec<String>) -> Result<Next<Errand>> {
        Ok(Next::finish(said.join(" ")))
    }
}

struct Office {
    db: TestDatabase,
    models: Models,
    node: TestNode,
    client: Client,
    conn: PgConnection,
}

impl Office {
    async fn open() -> Self {
        let (db, models) = (database().await, Models::start().await);
        let provider = models.provider();
        let build =
            |builder: longhaul::NodeBuilder| builder.workflow(Errand).provider("claude", provider).config(asking("a"));
        let node = TestNode::start(db.url(), build).await.unwrap();
        let (client, conn) = (node.client(), connect(&db).await);
        Self { db, models, node, client, conn }
    }

    async fn run(&self, id: &str, what: &str, until: RunStatus) {
        self.client.enqueue::<Errand>(id, what.into()).await.unwrap();
        crate::support::until_status(&self.client, id, until).await;
    }

    async fn until_removed(&self, id: &str) {
        eventually("its records are removed", async || self.client.run(id).await.unwrap().removed_at.map(|_| ())).await;
    }

    /// Waits until a sweep that began after now has ended, by what it does to a run that is old enough.
    async fn after_a_sweep(&mut self) {
        self.run("mark", "go", RunStatus::Completed).await;
        execute(
            &mut self.conn,
            "update longhaul.runs set finished_at = longhaul.now() - interval '31 days' where run_id = 'mark'",
        )
        .await;
        self.until_removed("mark").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_whole_root_goes_and_the_same_enqueue_does_not_run_again() {
    let mut office = Office::open().await;
    office.run("done", "go", RunStatus::Completed).await;
    let paid = office.client.batch_totals().await.unwrap();
    assert_eq!((paid.items, paid.nano_usd > 0), (2, true));
    check_paid(&office.models, &mut office.conn).await;

    office.node.advance(31 * DAY).await.unwrap();
    office.until_removed("done").await;
    for table in [
        "select count(*) from longhaul.events",
        "select count(*) from longhaul.waits",
        "select count(*) from longhaul.requests",
        "select count(*) from longhaul.answers",
        "select count(*) from longhaul.outputs",
        "select count(*) from longhaul.fork_branches",
        "select count(*) from longhaul.batch_items",
        "select count(*) from longhaul.inputs where body is not null",
        "select count(*) - 1 from longhaul.runs",
    ] {
        assert_eq!(number(&mut office.conn, table).await, 0, "{table}");
    }
    assert_eq!(office.client.batch_totals().await.unwrap(), paid, "what was paid is still known");
    check(&office.db).await;

    let again = office.client.enqueue::<Errand>("done", "go".into()).await.unwrap();
    assert_eq!(again.view().await.unwrap().status, RunStatus::Completed);
    assert!(matches!(again.output().await, Err(Error::Removed(_))));
    assert!(matches!(office.client.events("done").await, Err(Error::Removed(_))));
    assert!(matches!(office.client.retry("done").await, Err(Error::Removed(_))));
    let other = office.client.enqueue::<Errand>("done", "other".into()).await;
    assert!(matches!(other, Err(Error::DuplicateRun(_))));
    assert_eq!(office.models.paid().len(), 2);

    // And after a year nothing is left.
    office.node.advance(366 * DAY).await.unwrap();
    eventually("the tombstone is gone", async || office.client.run("done").await.is_err().then_some(())).await;
    assert_eq!(number(&mut office.conn, "select count(*) from longhaul.inputs").await, 0);
    check(&office.db).await;
    office.node.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_failed_is_kept_longer_and_what_is_held_is_kept() {
    let mut office = Office::open().await;
    office.run("failed", "fail", RunStatus::Failed).await;
    office.run("held", "go", RunStatus::Completed).await;
    let branch: String = sqlx::query_scalar("select run_id from longhaul.runs where parent is not null limit 1")
        .fetch_one(&mut office.conn)
        .await
        .unwrap();
    office.client.hold(&branch, "ada", "an audit").await.unwrap();
    office.node.advance(31 * DAY).await.unwrap();
    office.after_a_sweep().await;
    assert!(office.client.handle::<Errand>("held").await.unwrap().output().await.is_ok());
    assert!(!office.client.events("failed").await.unwrap().is_empty());
    assert!(matches!(office.client.hold("mark", "ada", "too late").await, Err(Error::Removed(_))));

    assert!(office.client.release_hold("held").await.unwrap());
    office.until_removed("held").await;
    office.node.advance(60 * DAY).await.unwrap();
    office.until_removed("failed").await;
    check(&office.db).await;
    office.node.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_root_stays_as_long_as_anything_below_it_is_open() {
    let mut office = Office::open().await;
    office.run("wait", "wait", RunStatus::Waiting).await;
    // As if it had ended while a branch goes on.
    let canceled =
        "update longhaul.runs set status = 7, finished_at = longhaul.now() - interval '40 days' where run_id = 'wait'";
    execute(&mut office.conn, canceled).await;
    office.after_a_sweep().await;
    assert!(office.client.run("wait").await.unwrap().removed_at.is_none());
    assert!(!office.client.events("wait").await.unwrap().is_empty());
    // Canceled, with a request in a send that was in doubt and may show up.
    execute(
        &mut office.conn,
        "update longhaul.runs set status = 7, owner = null, ready_at = null, finished_at = longhaul.now() where status < 5;
         update longhaul.batches b set status = 9, check_at = null, ambiguous_at = longhaul.now(), abandoned_at = longhaul.now()
         from longhaul.batch_items i, longhaul.runs r, longhaul.runs p
         where i.batch = b.id and r.id = i.run and p.id = r.parent and p.run_id = 'wait';
         delete from longhaul.runs where run_id = 'mark'",
    )
    .await;
    assert_eq!(number(&mut office.conn, "select count(*) from longhaul.batches where status = 9").await, 1);
    office.after_a_sweep().await;
    assert!(office.client.run("wait").await.unwrap().removed_at.is_none());
    office.node.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_root_that_cannot_be_removed_is_passed_over() {
    let mut office = Office::open().await;
    office.run("stuck", "go", RunStatus::Completed).await;
    office.run("later", "go", RunStatus::Completed).await;
    execute(
        &mut office.conn,
        "create function public.no() returns trigger language plpgsql as $$ begin raise exception 'too much'; end $$;
         create trigger no before delete on longhaul.outputs for each row
             when (old.body::text like '%' || 'stuck' || '%') execute function public.no()",
    )
    .await;
    execute(
        &mut office.conn,
        "update longhaul.outputs o set body = '\"stuck\"' from longhaul.runs r where r.id = o.run and r.run_id = 'stuck'",
    )
    .await;
    office.node.advance(31 * DAY).await.unwrap();
    office.until_removed("later").await;
    assert!(office.client.run("stuck").await.unwrap().removed_at.is_none());
    assert!(office.client.handle::<Errand>("stuck").await.unwrap().output().await.is_ok(), "it is whole");
    office.node.shutdown().await.unwrap();
}
