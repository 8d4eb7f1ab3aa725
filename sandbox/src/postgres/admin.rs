//! Connecting, and the statements that make and drop databases.

use std::time::Duration;

use sqlx::{AssertSqlSafe, Connection, PgConnection};
use tokio::time::{Instant, sleep};

use super::{Error, find};

/// Pause between two attempts to connect.
const PAUSE: Duration = Duration::from_millis(20);

/// Longest pause between two attempts to connect to a server that is starting.
const LONGEST_PAUSE: Duration = Duration::from_millis(200);

/// How long a busy server may refuse us before that is an error.
const BUSY: Duration = Duration::from_secs(30);

/// `cannot_connect_now`: the server is starting, stopping or recovering.
const CANNOT_CONNECT_NOW: &str = "57P03";
/// `too_many_connections`.
const TOO_MANY_CONNECTIONS: &str = "53300";
/// `object_in_use`: somebody is connected to the template.
const OBJECT_IN_USE: &str = "55006";

/// Connects; a server that says it is busy or starting is asked again for a while.
pub(super) async fn connect(url: &str) -> Result<PgConnection, Error> {
    let deadline = Instant::now() + BUSY;
    loop {
        match PgConnection::connect(url).await {
            Ok(connection) => return Ok(connection),
            Err(error) if is_any(&error, &[CANNOT_CONNECT_NOW, TOO_MANY_CONNECTIONS]) && Instant::now() < deadline => {
                sleep(PAUSE).await;
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Waits until a server that was just started can be used; `has_ended` says that this will not happen.
pub(super) async fn ready(url: &str, deadline: Instant, has_ended: impl Fn() -> bool) -> Result<(), Option<Error>> {
    let mut pause = PAUSE;
    loop {
        match PgConnection::connect(url).await {
            Ok(connection) => {
                // A failing goodbye does not make the server less ready.
                let _ = connection.close().await;
                return Ok(());
            }
            Err(_) if has_ended() => return Err(None),
            Err(error) if Instant::now() >= deadline => return Err(Some(error.into())),
            Err(_) => sleep(pause).await,
        }
        // Each attempt leaves a line in the log of a server that recovers for long.
        pause = (pause * 5 / 4).min(LONGEST_PAUSE);
    }
}

/// Refuses a server whose version is not supported; answers the version.
pub(super) async fn supported_version(connection: &mut PgConnection) -> Result<String, Error> {
    let version: String = sqlx::query_scalar("SHOW server_version").fetch_one(connection).await?;
    let version = version.split_whitespace().next().unwrap_or_default().to_owned();
    if find::SUPPORTED.contains(&find::numbers(&version).0) {
        Ok(version)
    } else {
        Err(Error::UnsupportedVersion { version, place: super::DATABASE_URL.to_owned() })
    }
}

/// Makes a database from a template; somebody who is still connected to the template is waited for, for a while.
pub(super) async fn create(connection: &mut PgConnection, name: &str, template: &str) -> Result<(), Error> {
    let statement = format!("CREATE DATABASE {} TEMPLATE {}", quoted(name), quoted(template));
    let deadline = Instant::now() + BUSY;
    loop {
        match run(connection, &statement).await {
            Err(Error::Database(error)) if is_any(&error, &[OBJECT_IN_USE]) && Instant::now() < deadline => {
                sleep(PAUSE).await;
            }
            outcome => return outcome,
        }
    }
}

/// Drops a database if it is there; whoever is connected to it is thrown out.
pub(super) async fn drop(connection: &mut PgConnection, name: &str) -> Result<(), Error> {
    run(connection, &format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", quoted(name))).await
}

/// One statement without parameters, which is how statements about whole databases must be sent.
pub(super) async fn run(connection: &mut PgConnection, statement: &str) -> Result<(), Error> {
    sqlx::raw_sql(AssertSqlSafe(statement)).execute(connection).await?;
    Ok(())
}

/// An identifier, quoted: the only text from outside that ever becomes part of a statement here.
pub(super) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

fn is_any(error: &sqlx::Error, codes: &[&str]) -> bool {
    error.as_database_error().and_then(|error| error.code()).is_some_and(|code| codes.contains(&&*code))
}
