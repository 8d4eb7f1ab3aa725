//! A server that `LONGHAUL_DATABASE_URL` names.

use longhaul_sandbox::postgres::{Options, Server};

use crate::child::Actor;
use crate::{ask, connect};

#[tokio::test]
async fn it_is_used_for_everything_and_left_running() {
    let server = Server::private(Options::default()).await.unwrap();
    let mut child = Actor::start("ensure", &[("LONGHAUL_DATABASE_URL", &server.url("postgres"))]);
    assert_eq!(child.hear(), server.url("made_there"));
    let prefix = server.url("longhaul_test_");
    let prefix = prefix.split('?').next().unwrap();
    assert!(child.hear().starts_with(prefix), "test databases are made there too");
    child.finish();
    let mut connection = connect(&server.url("made_there")).await;
    let left = "SELECT count(*)::text FROM pg_database WHERE datname LIKE 'longhaul_test_%'";
    assert_eq!(ask(&mut connection, left).await, "0");
}

#[tokio::test]
async fn one_that_does_not_answer_is_an_error() {
    let refused = Server::given("postgres://nobody@localhost:1/none").await.unwrap_err();
    assert_eq!(refused.code(), "postgres_database");
}
