//! What a server, a database and a role are like: facts for `doctor`, read through the catalogs, so that they can be had where the
//! schema is missing or the role may see none of it. Nothing here judges.

use super::connect::{Database, STATEMENT_TIMEOUT, within};
use super::error::StoreError;
use super::migrate;
use sqlx::types::chrono::{DateTime, Utc};
use sqlx::{PgConnection, Row};
use std::time::{Duration, Instant};
use tokio::time::timeout;

/// How long a statement of the probe for poolers may take.
const PROBE_PATIENCE: Duration = Duration::from_secs(5);
/// How often the probe for poolers looks.
const PROBES: usize = 4;

/// Everything that has a say in whether promises can be kept here.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Health {
    pub server: Server,
    pub schema: Schema,
    pub nodes: Option<Nodes>,
    pub sessions: Sessions,
    /// How far the server's clock is ahead of ours, and how exactly that could be measured, in milliseconds.
    pub clock_ahead_ms: i64,
    pub clock_error_ms: i64,
}

/// Settings as a session of ours has them: those of role and database are in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Server {
    pub version_num: i32,
    pub version: String,
    pub in_recovery: bool,
    pub encoding: String,
    pub fsync: bool,
    pub full_page_writes: bool,
    pub synchronous_commit: String,
    pub isolation: String,
    pub read_only: bool,
    pub autovacuum: bool,
    pub track_counts: bool,
    pub idle_session_timeout_ms: i64,
    pub role: String,
    pub database: String,
    pub max_connections: i64,
    pub reserved: i64,
    pub used: i64,
    /// Connections that role and database may have; negative: any number.
    pub role_limit: i32,
    pub role_used: i64,
    pub database_limit: i32,
    pub database_used: i64,
}

/// The schema, and what the role may do with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Schema {
    pub there: bool,
    pub usage: bool,
    /// May make objects in the schema, or make the schema where it is missing.
    pub create: bool,
    /// Whether the role owns all that is in it: only then it can alter it.
    pub owns: bool,
    /// The newest migration; `None`: it may not be read.
    pub found: Option<i64>,
    pub needed: i64,
    /// What the role lacks: a right and what it is on.
    pub lacks: Vec<(String, String)>,
}

/// The living nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Nodes {
    pub living: i64,
    /// Their versions.
    pub versions: Vec<String>,
    /// Names of those that have not been heard of for longer than their lease.
    pub silent: Vec<String>,
}

/// What two sessions saw of each other.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Sessions {
    /// Whether what a session asks for when it begins is set in it.
    pub settings_kept: bool,
    /// A session was served by another server process than before, or by the other session's.
    pub moved: bool,
    /// A session lost what it had set, or saw what the other one had.
    pub mixed: bool,
    /// A statement waited for the other session's transaction to end.
    pub blocked: bool,
}

impl Sessions {
    /// Whether sessions share server processes.
    pub(crate) fn shared(&self) -> bool {
        self.moved || self.mixed || self.blocked
    }
}

/// What could be examined.
pub(crate) enum Examined {
    /// All of it.
    Whole(Box<Health>),
    /// Sessions only: they share server processes, so that nothing else can be asked reliably.
    Pooled(Sessions),
}

pub(crate) async fn health(database: &Database) -> Result<Examined, StoreError> {
    let mut conn = database.connect().await?;
    // First, and in a form that needs no prepared statements: behind a pooler those may fail.
    let sessions = sessions(database, &mut conn).await?;
    if sessions.shared() {
        return Ok(Examined::Pooled(sessions));
    }
    let (clock_ahead_ms, clock_error_ms) = within(clock(&mut conn)).await?;
    let server = within(server(&mut conn)).await?;
    let schema = within(schema(&mut conn)).await?;
    let nodes = if schema.usage && schema.found == Some(schema.needed) && schema.lacks.is_empty() {
        Some(within(nodes(&mut conn)).await?)
    } else {
        None
    };
    Ok(Examined::Whole(Box::new(Health { server, schema, nodes, sessions, clock_ahead_ms, clock_error_ms })))
}

async fn server(conn: &mut PgConnection) -> Result<Server, StoreError> {
    let row = sqlx::query_as!(
        Server,
        r#"
select current_setting('server_version_num')::int as "version_num!", current_setting('server_version') as "version!",
    pg_is_in_recovery() as "in_recovery!", current_setting('server_encoding') as "encoding!",
    current_setting('fsync')::bool as "fsync!", current_setting('full_page_writes')::bool as "full_page_writes!",
    current_setting('synchronous_commit') as "synchronous_commit!",
    current_setting('default_transaction_isolation') as "isolation!",
    current_setting('default_transaction_read_only')::bool as "read_only!",
    current_setting('autovacuum')::bool as "autovacuum!", current_setting('track_counts')::bool as "track_counts!",
    (select setting::bigint from pg_settings where name = 'idle_session_timeout') as "idle_session_timeout_ms!",
    current_user::text as "role!", current_database()::text as "database!",
    current_setting('max_connections')::bigint as "max_connections!",
    -- `reserved_connections` since 16.
    (current_setting('superuser_reserved_connections')::bigint
        + coalesce(current_setting('reserved_connections', true)::bigint, 0)) as "reserved!",
    count(*) filter (where a.backend_type = 'client backend') as "used!",
    max(r.rolconnlimit) as "role_limit!", count(*) filter (where a.usename = current_user) as "role_used!",
    max(d.datconnlimit) as "database_limit!", count(*) filter (where a.datname = current_database()) as "database_used!"
from pg_stat_activity a, pg_roles r, pg_database d
where r.rolname = current_user and d.datname = current_database()
"#
    )
    .fetch_one(conn)
    .await?;
    Ok(row)
}

async fn schema(conn: &mut PgConnection) -> Result<Schema, StoreError> {
    let needed = migrate::needed();
    let named = sqlx::query!(
        r#"
select has_schema_privilege(n.oid, 'usage') as "usage!", has_schema_privilege(n.oid, 'create') as "create!",
    not exists (
        select from pg_class c where c.relnamespace = n.oid and not pg_has_role(c.relowner, 'member')
    ) as "owns!"
from pg_namespace n where n.nspname = 'longhaul'
"#
    )
    .fetch_optional(&mut *conn)
    .await?;
    let Some(named) = named else {
        let create = sqlx::query_scalar!(r#"select has_database_privilege(current_database(), 'create') as "create!""#)
            .fetch_one(conn)
            .await?;
        return Ok(Schema {
            there: false,
            usage: false,
            create,
            owns: true,
            found: Some(0),
            needed,
            lacks: Vec::new(),
        });
    };
    let lacks = sqlx::query!(
        r#"
select p.privilege as "privilege!", 'table longhaul.' || c.relname as "object!"
from pg_class c
cross join unnest(array['select', 'insert', 'update', 'delete']) p (privilege)
where c.relnamespace = 'longhaul'::regnamespace and c.relkind in ('r', 'p')
    -- Only migrations write it.
    and (c.relname <> 'schema_migrations' or p.privilege = 'select') and not has_table_privilege(c.oid, p.privilege)
union all
select 'execute', 'function longhaul.' || f.proname from pg_proc f
where f.pronamespace = 'longhaul'::regnamespace and not has_function_privilege(f.oid, 'execute')
order by 2, 1
"#
    )
    .fetch_all(&mut *conn)
    .await?;
    let lacks: Vec<_> = lacks.into_iter().map(|row| (row.privilege, row.object)).collect();
    let readable = sqlx::query_scalar!(
        r#"
select has_table_privilege(c.oid, 'select') as "readable!" from pg_class c
where c.relnamespace = 'longhaul'::regnamespace and c.relname = 'schema_migrations'
"#
    )
    .fetch_optional(&mut *conn)
    .await?;
    let found = match readable {
        // Somebody else's schema of that name, or what is left of ours.
        None => Some(0),
        Some(readable) if named.usage && readable => {
            let newest = sqlx::query_scalar("select coalesce(max(version), 0) from longhaul.schema_migrations");
            Some(newest.fetch_one(conn).await?)
        }
        Some(_) => None,
    };
    Ok(Schema { there: true, usage: named.usage, create: named.create, owns: named.owns, found, needed, lacks })
}

async fn nodes(conn: &mut PgConnection) -> Result<Nodes, StoreError> {
    let rows = sqlx::query!(
        r#"
select name, version, longhaul.now() - beat_at > lease_ms * interval '1 millisecond' as "silent!"
from longhaul.nodes where dead_at is null order by name
"#
    )
    .fetch_all(conn)
    .await?;
    let mut versions: Vec<String> = rows.iter().map(|row| row.version.clone()).collect();
    versions.sort_unstable();
    versions.dedup();
    let living = rows.len() as i64;
    let silent = rows.into_iter().filter(|row| row.silent).map(|row| row.name).collect();
    Ok(Nodes { living, versions, silent })
}

/// The server's time against the middle of the time that asking for it took.
async fn clock(conn: &mut PgConnection) -> Result<(i64, i64), StoreError> {
    let mut best: Option<(i64, i64)> = None;
    for _ in 0..3 {
        let (before, began) = (Utc::now(), Instant::now());
        let theirs: DateTime<Utc> =
            sqlx::query_scalar!(r#"select clock_timestamp() as "now!""#).fetch_one(&mut *conn).await?;
        let half = began.elapsed().as_millis() as i64 / 2;
        let ahead = (theirs - before).num_milliseconds() - half;
        if best.is_none_or(|(_, error)| half < error) {
            best = Some((ahead, half));
        }
    }
    Ok(best.unwrap_or_default())
}

const NAME_A: &str = "select pg_backend_pid(), set_config('longhaul.probe', 'a', false)";
const NAME_B: &str = "begin; select pg_backend_pid(), set_config('longhaul.probe', 'b', false)";
const LOOK: &str = "select pg_backend_pid(), coalesce(current_setting('longhaul.probe', true), '')";

/// Finds out a pooler that hands server processes from session to session: while one session is in a transaction, the other one
/// looks whether it is still served by whom it was, and whether it still has what it had set. By the simple protocol: a prepared
/// statement might be looked for where it is not.
async fn sessions(database: &Database, a: &mut PgConnection) -> Result<Sessions, StoreError> {
    let mut b = database.connect().await?;
    let kept = sqlx::raw_sql("select current_setting('statement_timeout')").fetch_one(&mut *a).await?;
    let asked = format!("{}s", STATEMENT_TIMEOUT.as_secs());
    let mut seen = Sessions { settings_kept: kept.try_get::<String, _>(0)? == asked, ..Sessions::default() };
    let (first, _) = ask(a, NAME_A).await?;
    for _ in 0..PROBES {
        let (Ok(other), Ok(again)) =
            (timeout(PROBE_PATIENCE, ask(&mut b, NAME_B)).await, timeout(PROBE_PATIENCE, ask(a, LOOK)).await)
        else {
            seen.blocked = true;
            break;
        };
        let ((other, _), (again, has)) = (other?, again?);
        sqlx::raw_sql("rollback").execute(&mut b).await?;
        seen.moved |= again != first || other == first;
        seen.mixed |= has != "a";
    }
    Ok(seen)
}

async fn ask(conn: &mut PgConnection, sql: &'static str) -> Result<(i32, String), StoreError> {
    let row = sqlx::raw_sql(sql).fetch_one(conn).await?;
    Ok((row.try_get(0)?, row.try_get(1)?))
}
