//! The doctor on a real server: what it says where all is well, and what of settings, rights and schema it finds.

use crate::support::{connect, database, execute};
use longhaul::client::{HealthCheck, Level};
use longhaul::{Client, doctor};
use longhaul_sandbox::postgres::testing::TestDatabase;

/// Test servers trade durability for speed, and other tests use their connections.
const OF_THE_SERVER: [&str; 4] = ["fsync", "full-page-writes", "synchronous-commit", "connections"];

/// What is not well, but for how a test server is set.
async fn found(url: &str) -> Vec<HealthCheck> {
    let checks = doctor(url).await.unwrap().checks;
    checks.into_iter().filter(|check| check.level != Level::Ok && !OF_THE_SERVER.contains(&check.check)).collect()
}

async fn as_role(db: &TestDatabase, role: &str) -> Vec<HealthCheck> {
    let and = if db.url().contains('?') { '&' } else { '?' };
    found(&format!("{}{and}options=-c%20role%3D{role}", db.url())).await
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_found_where_all_is_well() {
    let db = database().await;
    assert_eq!(found(db.url()).await, []);
    let client = Client::connect(db.url()).await.unwrap();
    let names = |checks: Vec<HealthCheck>| checks.into_iter().map(|check| check.check).collect::<Vec<_>>();
    let (of_client, of_url) = (client.doctor().await.unwrap(), doctor(db.url()).await.unwrap());
    assert_eq!(names(of_client.checks), names(of_url.checks));
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_of_the_database_are_found() {
    let db = database().await;
    let mut conn = connect(&db).await;
    execute(
        &mut conn,
        "do $$ declare d text := quote_ident(current_database()); begin
             execute 'alter database ' || d || ' set synchronous_commit = off';
             execute 'alter database ' || d || ' set default_transaction_isolation = serializable';
             execute 'alter database ' || d || ' set default_transaction_read_only = on';
             execute 'alter database ' || d || ' set idle_session_timeout = 60000';
             execute 'alter database ' || d || ' connection limit 6';
         end $$",
    )
    .await;
    let told: Vec<_> = found(db.url()).await.iter().map(|check| (check.check, check.level)).collect();
    let bad = |check| (check, Level::Bad);
    assert_eq!(told, [bad("isolation"), bad("read-only"), ("idle-timeout", Level::Warn), bad("database-limit")]);
    let checks = doctor(db.url()).await.unwrap().checks;
    assert!(checks.iter().any(|check| check.check == "synchronous-commit" && check.level == Level::Bad), "{checks:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn rights_that_a_role_lacks_are_named() {
    let db = database().await;
    let reader = as_role(&db, "pg_read_all_data").await;
    assert_eq!(reader.iter().map(|check| check.check).collect::<Vec<_>>(), ["rights", "migrate"]);
    assert!(reader[0].found.contains("`pg_read_all_data` lacks delete on table longhaul.accounts"), "{reader:?}");
    let nobody = as_role(&db, "pg_monitor").await;
    assert_eq!(nobody.iter().map(|check| check.check).collect::<Vec<_>>(), ["schema", "rights", "migrate"]);
    assert!(nobody[1].found.contains("lacks usage on schema longhaul"), "{nobody:?}");
    // What docs/operating.md tells to grant is enough.
    let mut conn = connect(&db).await;
    execute(
        &mut conn,
        "grant usage on schema longhaul to pg_monitor;
         grant select, insert, update, delete on all tables in schema longhaul to pg_monitor;
         grant execute on all functions in schema longhaul to pg_monitor",
    )
    .await;
    assert_eq!(as_role(&db, "pg_monitor").await.iter().map(|check| check.check).collect::<Vec<_>>(), ["migrate"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_schema_that_is_missing_or_older_is_found() {
    let empty = TestDatabase::empty().await.unwrap();
    let told = found(empty.url()).await;
    assert_eq!((told.len(), told[0].found.as_str()), (1, "there is no schema `longhaul`"));
    let db = database().await;
    let mut conn = connect(&db).await;
    execute(
        &mut conn,
        "delete from longhaul.schema_migrations where version = (select max(version) from longhaul.schema_migrations)",
    )
    .await;
    let told = found(db.url()).await;
    assert!(told.len() == 1 && told[0].advice.contains("longhaul migrate"), "{told:?}");
}
