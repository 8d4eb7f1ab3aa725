//! Lists of runs, the ends of runs as a stream, and the ledger of a tree.

use crate::flows::Trial;
use crate::forks::Tree;
use crate::support::{
    Count, builder, config, connect, database, eventually, execute, number, until_over, until_status,
};
use futures::{StreamExt, pin_mut};
use longhaul::{Client, Cursor, EnqueueOptions, Filter, Node, OutputCursor, RunStatus, WaitKind};
use sqlx::{Connection, Row};

/// All pages of a list.
async fn listed(client: &Client, filter: &Filter, limit: u32) -> Vec<String> {
    let (mut ids, mut after) = (Vec::new(), None);
    loop {
        let page = client.list(filter, after, limit).await.unwrap();
        assert!(page.runs.len() <= limit as usize);
        ids.extend(page.runs.into_iter().map(|run| run.run_id));
        // A cursor survives being kept as text.
        after = page.next.map(|next| next.to_string().parse::<Cursor>().unwrap());
        if after.is_none() {
            return ids;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_are_by_what_runs_have_in_common_and_the_newest_come_first() {
    let db = database().await;
    let client = Client::connect(db.url()).await.unwrap();
    for k in 0..7 {
        client
            .enqueue_with::<Count>(format!("c{k}"), k, EnqueueOptions::new().tag(format!("t{}", k % 2)))
            .await
            .unwrap();
    }
    for kind in ["fatal", "fine", "hopeless"] {
        client.enqueue::<Trial>(kind, kind.into()).await.unwrap();
    }
    let node = builder(&db, "a").workflow(Trial::default()).start().await.unwrap();
    until_over(&client).await;
    for limit in [1, 2, 100] {
        let all = listed(&client, &Filter::new(), limit).await;
        assert_eq!(all, ["hopeless", "fine", "fatal", "c6", "c5", "c4", "c3", "c2", "c1", "c0"]);
        assert_eq!(listed(&client, &Filter::new().tag("t1"), limit).await, ["c5", "c3", "c1"]);
        let failed = Filter::new().status(RunStatus::Failed);
        assert_eq!(listed(&client, &failed, limit).await, ["hopeless", "fatal"]);
        assert_eq!(listed(&client, &failed.clone().workflow("count"), limit).await, [""; 0]);
        let either = failed.workflow("trial").status(RunStatus::Completed);
        assert_eq!(listed(&client, &either, limit).await, ["hopeless", "fine", "fatal"]);
    }
    let now = client.now().await.unwrap();
    assert_eq!(listed(&client, &Filter::new().newer_than(now), 5).await, [""; 0]);
    assert_eq!(listed(&client, &Filter::new().older_than(now), 5).await.len(), 10);
    let unknown = client.list(&Filter::new().workflow("nobody"), None, 1).await.unwrap_err();
    assert_eq!(unknown.code(), "unknown-workflow");
    node.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn every_status_is_listed_while_it_lasts() {
    let db = database().await;
    let client = Client::connect(db.url()).await.unwrap();
    let trial = Trial::default();
    client.enqueue::<Trial>("held", "stuck".into()).await.unwrap();
    let node = builder(&db, "a").workflow(trial.clone()).start().await.unwrap();
    until_status(&client, "held", RunStatus::Owned).await;
    client.pause("trial", "ann", "a look").await.unwrap();
    for id in ["queued", "parked", "canceled"] {
        client.enqueue::<Trial>(id, "fine".into()).await.unwrap();
    }
    client.park("parked", "ann", "not today").await.unwrap();
    client.cancel("canceled").await.unwrap();
    let by = async |status| listed(&client, &Filter::new().status(status), 10).await;
    assert_eq!(by(RunStatus::Runnable).await, ["queued"]);
    assert_eq!(by(RunStatus::Owned).await, ["held"]);
    assert_eq!(by(RunStatus::Parked).await, ["parked"]);
    assert_eq!(by(RunStatus::Canceled).await, ["canceled"]);
    let several = Filter::new().status(RunStatus::Canceled).status(RunStatus::Owned).status(RunStatus::Runnable);
    assert_eq!(listed(&client, &several, 1).await, ["canceled", "queued", "held"]);
    trial.gate.open();
    client.resume("trial", "ann").await.unwrap();
    client.retry("parked").await.unwrap();
    until_over(&client).await;
    assert_eq!(by(RunStatus::Parked).await, [""; 0]);
    assert_eq!(by(RunStatus::Completed).await, ["parked", "queued", "held"]);
    node.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn waits_tell_what_is_waited_for() {
    let db = database().await;
    let client = Client::connect(db.url()).await.unwrap();
    let node = builder(&db, "a").workflow(crate::questions::Twice).start().await.unwrap();
    client.enqueue::<crate::questions::Twice>("r", ()).await.unwrap();
    until_status(&client, "r", RunStatus::Waiting).await;
    let page = client.waits(&Filter::new().workflow("twice"), None, 10).await.unwrap();
    let wait = &page.waits[0];
    assert_eq!((wait.run_id.as_str(), wait.kind, wait.asks.as_deref()), ("r", WaitKind::Human, Some("One?")));
    assert!(page.next.is_none() && wait.age_ms >= 0 && wait.due_in_ms.is_none());
    let timers = client.waits(&Filter::new().waits_for(WaitKind::Timer), None, 10).await.unwrap();
    assert!(timers.waits.is_empty());
    assert_eq!(listed(&client, &Filter::new().waits_for(WaitKind::Human), 10).await, ["r"]);
    let odd = client.waits(&Filter::new().status(RunStatus::Failed), None, 10).await.unwrap_err();
    assert_eq!(odd.code(), "invalid-filter");
    node.shutdown().await.unwrap();
}

/// A hundred thousand runs, nearly all of them completed: what is rare is found without reading them.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_rare_is_found_without_reading_what_is_not() {
    let db = database().await;
    let client = Client::connect(db.url()).await.unwrap();
    client.enqueue::<Count>("first", 1).await.unwrap();
    client.enqueue::<Trial>("other", "fine".into()).await.unwrap();
    let mut conn = connect(&db).await;
    execute(
        &mut conn,
        "insert into longhaul.runs (run_id, workflow, cursor, input_bytes, step, status, finished_at, reason, wait)
         select 'x' || k, v.id, 1, 1, 'one', s.status, case when s.status in (5, 6, 7) then now() end,
             case when s.status = 4 then 'why' end, case when s.status = 3 then 0 end
         from generate_series(1, 100000) k
         cross join lateral (select case when k % 10000 = 1 then 6 when k % 10000 = 2 then 4 when k % 10000 = 3 then 3
             else 5 end as status) s
         join longhaul.workflow_versions v on v.name = case when k < 50000 then 'count' else 'trial' end;
         insert into longhaul.inputs (run, body) select id, '1' from longhaul.runs where status <> 1;
         analyze longhaul.runs",
    )
    .await;
    for status in [RunStatus::Failed, RunStatus::Parked, RunStatus::Waiting] {
        let page = client.list(&Filter::new().workflow("count").status(status), None, 100).await.unwrap();
        assert_eq!((page.runs.len(), page.next), (5, None), "{status}");
    }
    // The statement itself, as it stands in the store.
    let source = include_str!("../../src/store/list.rs");
    let sql = source.split("r#\"").nth(1).and_then(|rest| rest.split("\"#").next()).unwrap();
    let sql = sql.replace("as \"id!\"", "as id");
    let sql = sql.replace("$1", "array[1, 2]").replace("$2", "array[3, 4, 6]::smallint[]").replace("$3", "1000000");
    let explain = format!("explain (analyze, buffers, costs off) {}", sql.replace("$4", "5000"));
    let plan: Vec<String> = sqlx::query(sqlx::AssertSqlSafe(explain))
        .fetch_all(&mut conn)
        .await
        .unwrap()
        .iter()
        .map(|row| row.get(0))
        .collect();
    let text = plan.join("\n");
    assert!(text.contains("runs_listed") && !text.contains("Seq Scan on runs"), "{text}");
    let read = plan.iter().find_map(|line| line.trim().strip_prefix("Buffers: shared hit=")).unwrap();
    let hit: u32 = read.split_whitespace().next().unwrap().parse().unwrap();
    assert!(hit < 200, "{hit} pages were read:\n{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn ends_are_followed_from_a_place_that_can_be_kept() {
    let db = database().await;
    let client = Client::connect(db.url()).await.unwrap();
    let node = builder(&db, "a").workflow(Trial::default()).start().await.unwrap();
    let runs = |range: std::ops::Range<i64>| range.map(|k| (format!("r{k}"), k)).collect::<Vec<_>>();
    client.enqueue_many::<Count>(runs(0..30)).await.unwrap();
    client.enqueue::<Trial>("not of these", "fine".into()).await.unwrap();
    let outputs = client.outputs::<Count>(OutputCursor::START);
    pin_mut!(outputs);
    let mut seen = std::collections::BTreeMap::new();
    let mut kept = OutputCursor::START;
    while seen.len() < 20 {
        let finished = outputs.next().await.unwrap().unwrap();
        assert!(finished.cursor > kept, "places rise");
        kept = finished.cursor;
        seen.insert(finished.run_id, finished.output.unwrap());
    }
    // The reader dies, and another goes on from what was kept.
    let outputs = client.outputs::<Count>(kept.to_string().parse().unwrap());
    pin_mut!(outputs);
    client.enqueue_many::<Count>(runs(30..40)).await.unwrap();
    while seen.len() < 40 {
        let finished = outputs.next().await.unwrap().unwrap();
        assert!(seen.insert(finished.run_id, finished.output.unwrap()).is_none(), "each comes once");
    }
    assert!(seen.iter().all(|(id, sum)| id[1..].parse::<i64>().unwrap() + 4 == *sum));
    until_over(&client).await;
    let end = eventually("all ends are told", async || {
        let end = client.outputs_end().await.unwrap();
        let page = client.finished::<Count>(kept, 1_000).await.unwrap();
        (page.next < end).then_some(end)
    })
    .await;
    let page = client.finished::<Count>(end, 10).await.unwrap();
    assert!(page.finished.is_empty() && page.next == end && !page.more);
    node.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_is_an_end_and_so_is_what_comes_of_its_retry() {
    let db = database().await;
    let client = Client::connect(db.url()).await.unwrap();
    let node = Node::builder(db.url()).workflow(Trial::default()).config(config("a")).start().await.unwrap();
    client.enqueue::<Trial>("hopeless", "hopeless".into()).await.unwrap();
    until_over(&client).await;
    let first = client.outputs::<Trial>(OutputCursor::START);
    pin_mut!(first);
    let first = first.next().await.unwrap().unwrap();
    assert_eq!(first.output.unwrap_err().code(), "run-failed");
    client.retry("hopeless").await.unwrap();
    let second = client.outputs::<Trial>(first.cursor);
    pin_mut!(second);
    let second = second.next().await.unwrap().unwrap();
    assert_eq!((second.run_id.as_str(), second.output.is_err()), ("hopeless", true));
    node.shutdown().await.unwrap();
}

/// The order of numbers is not the order of COMMITs. A transaction that began first and commits last is waited for.
#[tokio::test(flavor = "multi_thread")]
async fn an_end_whose_commit_comes_late_is_not_missed() {
    let db = database().await;
    let client = Client::connect(db.url()).await.unwrap();
    for k in 0..3 {
        client.enqueue::<Count>(format!("r{k}"), k).await.unwrap();
    }
    let end = "with r as (update longhaul.runs set status = 5, ready_at = null, finished_at = now() where run_id = $1
        returning id) insert into longhaul.outputs (run, body) select id, '1' from r";
    let (mut early, mut late) = (connect(&db).await, connect(&db).await);
    let mut held = early.begin().await.unwrap();
    sqlx::query(end).bind("r0").execute(&mut *held).await.unwrap();
    for id in ["r1", "r2"] {
        sqlx::query(end).bind(id).execute(&mut late).await.unwrap();
    }
    let page = client.finished::<Count>(OutputCursor::START, 10).await.unwrap();
    assert!(page.finished.is_empty(), "nothing is told past a transaction that is still open");
    assert_eq!(page.next, OutputCursor::START);
    held.commit().await.unwrap();
    // Other databases of this server have transactions too: they only hold it up.
    let (mut ids, mut place) = (Vec::new(), OutputCursor::START);
    eventually("all are told", async || {
        let page = client.finished::<Count>(place, 10).await.unwrap();
        place = page.next;
        ids.extend(page.finished.into_iter().map(|end| end.run_id));
        (ids.len() == 3).then_some(())
    })
    .await;
    assert_eq!(ids, ["r0", "r1", "r2"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn ends_of_another_servers_transactions_are_refused_and_not_passed_over() {
    let db = database().await;
    let client = Client::connect(db.url()).await.unwrap();
    client.enqueue::<Count>("r", 1).await.unwrap();
    let node = builder(&db, "a").start().await.unwrap();
    until_over(&client).await;
    let far: OutputCursor = "o999999999999.1".parse().unwrap();
    assert_eq!(client.finished::<Count>(far, 10).await.unwrap_err().code(), "foreign-cursor");
    let mut conn = connect(&db).await;
    execute(&mut conn, "update longhaul.outputs set finished_in = '999999999999'").await;
    assert_eq!(client.finished::<Count>(OutputCursor::START, 10).await.unwrap_err().code(), "foreign-cursor");
    // What the error says to do.
    execute(&mut conn, "update longhaul.outputs set finished_in = default").await;
    eventually("it is told again", async || {
        let page = client.finished::<Count>(OutputCursor::START, 10).await.unwrap();
        (page.finished.len() == 1).then_some(())
    })
    .await;
    node.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_ledger_of_a_tree_is_in_the_order_of_time() {
    let db = database().await;
    let node = Node::builder(db.url()).workflow(Tree::default()).config(config("a")).start().await.unwrap();
    let client = node.client();
    client.enqueue_with::<Tree>("r", "nested 2".into(), EnqueueOptions::new().tag("t")).await.unwrap();
    until_over(&client).await;
    let mut conn = connect(&db).await;
    let total = number(&mut conn, "select count(*) from longhaul.events").await;
    let (mut events, mut after) = (Vec::new(), None);
    loop {
        let page = client.tree_events("r", after, 7).await.unwrap();
        events.extend(page.events);
        after = page.next.map(|next| next.to_string().parse().unwrap());
        if after.is_none() {
            break;
        }
    }
    assert_eq!(events.len() as i64, total);
    assert!(events.is_sorted_by_key(|(_, event)| (event.at, event.id.run, event.id.ordinal)));
    let branches = client.list(&Filter::new(), None, 100).await.unwrap().runs;
    assert!(branches.len() > 1 && branches.iter().all(|run| run.tags == ["t"]), "branches have the tags of their root");
    assert_eq!(listed(&client, &Filter::new().roots(), 10).await, ["r"]);
    node.shutdown().await.unwrap();
}
