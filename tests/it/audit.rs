//! The audit through its public door. What each check finds is tested beside it, on a world that the store makes.

use longhaul::audit::{Auditor, Check, audit};
use longhaul::store::{Database, audit_plant};
use longhaul_sandbox::postgres::testing::TestDatabase;
use std::time::Duration;

#[tokio::test]
async fn a_new_database_is_clean_until_something_is_planted() {
    let migrate = |url: String| async move { longhaul::migrate(&url).await };
    let keep = TestDatabase::create(&longhaul::store::schema_digest(), migrate).await.unwrap();
    let database = Database::new(keep.url()).unwrap();
    assert!(audit(&database, Some(&[])).await.unwrap().is_clean());

    audit_plant::plant(&database, "owner-alive").await.unwrap();
    let report = Auditor::new(database).grace(Duration::ZERO).run(None).await.unwrap();
    assert_eq!(report.counts, [(Check::OwnerAlive, 1)]);
    assert!(report.to_string().contains("owner-alive: run 1 is held by a node that does not exist"), "{report}");
}
