//! Many test databases in one process.

use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::future::join_all;
use longhaul_sandbox::postgres::testing::TestDatabase;
use sqlx::Connection;

use crate::{ask, connect, run};

async fn migrate(url: String) -> Result<(), sqlx::Error> {
    let mut connection = sqlx::PgConnection::connect(&url).await?;
    sqlx::raw_sql("CREATE TABLE thing (id int PRIMARY KEY)").execute(&mut connection).await?;
    connection.close().await
}

/// A template name that no earlier run has used: the server may still be warm.
fn fresh_name() -> String {
    uuid::Uuid::now_v7().to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn twenty_at_once_come_from_one_migration() {
    let (template, migrations) = (fresh_name(), AtomicUsize::new(0));
    let made = join_all((0..20).map(async |_| {
        let counted = |url| {
            migrations.fetch_add(1, Ordering::SeqCst);
            migrate(url)
        };
        let database = TestDatabase::create(&template, counted).await.unwrap();
        // The same key in each: they do not see one another.
        run(&mut connect(database.url()).await, "INSERT INTO thing VALUES (1)").await;
        database
    }))
    .await;
    assert_eq!(migrations.load(Ordering::SeqCst), 1);
    let names: std::collections::BTreeSet<_> = made.iter().map(TestDatabase::name).collect();
    assert_eq!(names.len(), 20);
}

#[tokio::test]
async fn it_is_dropped_even_with_a_client_connected() {
    let (kept, gone) = (TestDatabase::empty().await.unwrap(), TestDatabase::empty().await.unwrap());
    let name = gone.name().to_owned();
    let _connection = connect(gone.url()).await;
    drop(gone);
    let left: i64 = sqlx::query_scalar("SELECT count(*) FROM pg_database WHERE datname = $1")
        .bind(name)
        .fetch_one(&mut connect(kept.url()).await)
        .await
        .unwrap();
    assert_eq!(left, 0);
}

#[tokio::test]
async fn its_server_is_durable_and_tracks_commits() {
    let database = TestDatabase::empty().await.unwrap();
    let settings = "SELECT string_agg(name || '=' || setting, ' ' ORDER BY name) FROM pg_settings WHERE name IN
        ('fsync', 'synchronous_commit', 'full_page_writes', 'track_commit_timestamp')";
    assert_eq!(
        ask(&mut connect(database.url()).await, settings).await,
        "fsync=on full_page_writes=on synchronous_commit=on track_commit_timestamp=on"
    );
}

#[tokio::test]
async fn a_failed_migration_is_told_and_done_again() {
    let template = fresh_name();
    let fail = |url: String| async move {
        run(&mut connect(&url).await, "CREATE TABLE thing (half int)").await;
        Err::<(), _>(std::io::Error::other("no luck"))
    };
    let failed = TestDatabase::create(&template, fail).await.unwrap_err();
    assert_eq!(failed.code(), "postgres_migrate");
    assert!(failed.to_string().contains("no luck"), "{failed}");
    TestDatabase::create(&template, migrate).await.unwrap();
}

#[tokio::test]
async fn a_connection_left_open_by_a_migration_is_ended() {
    let (left_open, mut taken) = tokio::sync::mpsc::unbounded_channel();
    let leave = |url: String| async move {
        left_open.send(connect(&url).await).unwrap();
        Ok::<_, Infallible>(())
    };
    TestDatabase::create(&fresh_name(), leave).await.unwrap();
    let mut connection = taken.recv().await.unwrap();
    assert!(sqlx::query("SELECT 1").execute(&mut connection).await.is_err());
}
