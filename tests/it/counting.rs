//! How many runs there are is known without counting them, and right whatever was done to them.

use crate::support::{Count, builder, check, connect, database, eventually, execute, number, until_over};
use longhaul::Client;

/// The counted and the real number of runs of each status.
const DIFFERENT: &str = "select count(*) from (
    select status, sum(n) as n from longhaul.run_counts group by 1 having sum(n) <> 0) c
    full join (select status, count(*) as n from longhaul.runs group by 1) r using (status) where c.n is distinct from r.n";

#[tokio::test(flavor = "multi_thread")]
async fn counts_are_right_whatever_happens_to_runs() {
    let db = database().await;
    let client = Client::connect(db.url()).await.unwrap();
    let mut conn = connect(&db).await;
    client.enqueue_many::<Count>((0..50).map(|k| (format!("r{k}"), k)).collect()).await.unwrap();
    assert_eq!(client.counts().await.unwrap().runnable, 50);
    client.cancel("r7").await.unwrap();
    client.park("r8", "ada", "later").await.unwrap();
    // A statement that is rolled back counts nothing.
    execute(&mut conn, "begin; delete from longhaul.runs; rollback").await;
    let node = builder(&db, "a").start().await.unwrap();
    until_over(&client).await;
    let counts = client.counts().await.unwrap();
    assert_eq!((counts.completed, counts.canceled, counts.parked, counts.runnable), (48, 1, 1, 0), "{counts:?}");
    assert_eq!(client.counts_of("count").await.unwrap(), counts);
    assert!(client.counts_of("nobody's").await.is_err());
    assert_eq!(number(&mut conn, DIFFERENT).await, 0);

    // A node adds the rows up, and the sums stay.
    eventually("a row for each status", async || {
        (number(&mut conn, "select count(*) from longhaul.run_counts").await == 3).then_some(())
    })
    .await;
    assert_eq!(client.counts().await.unwrap(), counts);
    check(&db).await;
    execute(&mut conn, "delete from longhaul.runs where run_id = 'r8'; delete from longhaul.inputs").await;
    assert_eq!(number(&mut conn, DIFFERENT).await, 0);
    node.shutdown().await.unwrap();
}
