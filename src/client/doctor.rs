//! `doctor`: what of a server, a database and a role keeps promises from being kept, what it means, and what to do.
//!
//! [`judge`] is a pure function over what the store has found; nothing is changed anywhere.

use super::Client;
use crate::error::Error;
use crate::store::{Database, Examined, Health, Nodes, Schema, Server, Sessions, StoreError, health};
use std::fmt;

/// Servers that Longhaul is tested with.
const VERSIONS: std::ops::RangeInclusive<i32> = 15..=18;
/// Connections that a node uses by default.
const NODE_CONNECTIONS: i64 = 8;
/// How far clocks may be apart before it is worth a word, in milliseconds.
const CLOCK_MS: i64 = 2_000;
/// Missing rights that are named.
const NAMED: usize = 5;

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// As it should be.
    Ok,
    /// It works; something is worse than it could be, or will be.
    Warn,
    /// A promise is not kept, or nodes cannot work.
    Bad,
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct HealthCheck {
    /// Its stable name.
    pub check: &'static str,
    /// How bad it is.
    pub level: Level,
    /// What was found.
    pub found: String,
    /// What that means; empty where all is well.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub means: &'static str,
    /// What to do; empty where all is well.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub advice: &'static str,
}

/// What the doctor has found, in the order in which it looked.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Diagnosis {
    /// Each thing that was looked at.
    pub checks: Vec<HealthCheck>,
}

impl Diagnosis {
    /// The worst of it.
    pub fn level(&self) -> Level {
        self.checks.iter().map(|check| check.level).max().unwrap_or(Level::Ok)
    }
}

impl fmt::Display for Diagnosis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for check in &self.checks {
            let level = match check.level {
                Level::Ok => "ok",
                Level::Warn => "WARN",
                Level::Bad => "BAD",
            };
            writeln!(f, "{level:<5} {:<18} {}", check.check, check.found)?;
            for line in [check.means, check.advice].into_iter().filter(|line| !line.is_empty()) {
                writeln!(f, "{:24} {line}", "")?;
            }
        }
        Ok(())
    }
}

/// Looks at a server, a database and a role as a node would use them: settings, connections, rights, schema, poolers. It changes
/// nothing, and works where there is no schema yet.
///
/// ```no_run
/// # async fn f() -> Result<(), longhaul::Error> {
/// let diagnosis = longhaul::doctor("postgres://localhost/app").await?;
/// assert!(diagnosis.level() < longhaul::client::Level::Bad, "{diagnosis}");
/// # Ok(()) }
/// ```
///
/// # Errors
/// [`Error::Store`] when the server cannot be reached, or refuses to be looked at.
pub async fn doctor(url: &str) -> Result<Diagnosis, Error> {
    diagnose(&Database::new(url)?).await
}

impl Client {
    /// [`doctor`], for the database of this client.
    ///
    /// # Errors
    /// As [`doctor`].
    pub async fn doctor(&self) -> Result<Diagnosis, Error> {
        diagnose(self.store().database()).await
    }
}

async fn diagnose(database: &Database) -> Result<Diagnosis, Error> {
    match health(database).await {
        Ok(Examined::Whole(health)) => Ok(Diagnosis { checks: judge(&health) }),
        Ok(Examined::Pooled(seen)) => Ok(Diagnosis { checks: vec![sessions(&seen)] }),
        // PgBouncer does not let settings of sessions through unless told to.
        Err(StoreError::Connection(why) | StoreError::Refused { message: why, .. })
            if why.contains("unsupported startup parameter") =>
        {
            Ok(Diagnosis { checks: vec![pooler(why)] })
        }
        Err(error) => Err(error.into()),
    }
}

fn judge(health: &Health) -> Vec<HealthCheck> {
    let mut checks = vec![sessions(&health.sessions), limits(&health.sessions)];
    checks.extend(server(&health.server));
    checks.extend(connections(&health.server));
    checks.extend(schema(&health.schema, &health.server.role));
    checks.push(clock(health.clock_ahead_ms, health.clock_error_ms));
    checks.extend(health.nodes.as_ref().map(nodes));
    checks.push(HealthCheck::of("extensions", "none is needed".into()));
    checks
}

impl HealthCheck {
    fn of(check: &'static str, found: String) -> Self {
        Self { check, level: Level::Ok, found, means: "", advice: "" }
    }

    fn if_not(self, well: bool, level: Level, means: &'static str, advice: &'static str) -> Self {
        if well { self } else { Self { level, means, advice, ..self } }
    }
}

fn pooler(found: String) -> HealthCheck {
    HealthCheck::of("pooler", found).if_not(
        false,
        Level::Bad,
        "Something between here and the server does not give each session a server process of its own: prepared statements, \
         session settings and notifications get lost.",
        "Connect directly, or through a pooler in session mode (PgBouncer: pool_mode = session, ignore_startup_parameters = \
         extra_float_digits, options).",
    )
}

/// A pooler in session mode may drop what a session asks for at its start.
fn limits(seen: &Sessions) -> HealthCheck {
    let found = if seen.settings_kept {
        "set as asked for"
    } else {
        "not set: what a session asks for at its start is dropped"
    };
    HealthCheck::of("session-settings", found.into()).if_not(
        seen.settings_kept,
        Level::Warn,
        "Nothing ends a statement of ours that hangs, or waits for a lock for ever.",
        "Set them for the role: alter role .. set statement_timeout = '20s', lock_timeout = '10s', \
         idle_in_transaction_session_timeout = '10s' (one statement each).",
    )
}

fn sessions(seen: &Sessions) -> HealthCheck {
    let signs = [
        (seen.moved, "a session changes its server process"),
        (seen.mixed, "a session does not keep what it sets"),
        (seen.blocked, "a statement waits for another session's transaction"),
    ];
    let signs: Vec<&str> = signs.into_iter().filter(|(seen, _)| *seen).map(|(_, sign)| sign).collect();
    if signs.is_empty() {
        return HealthCheck::of("pooler", "each session has a server process of its own".into());
    }
    pooler(signs.join("; "))
}

fn server(server: &Server) -> Vec<HealthCheck> {
    let major = server.version_num / 10_000;
    let on = |set: bool| if set { "on" } else { "off" }.to_owned();
    let version = HealthCheck::of("server-version", format!("PostgreSQL {}", server.version));
    let version = if major < *VERSIONS.start() {
        version.if_not(false, Level::Bad, "Statements of ours do not run on it.", "Use PostgreSQL 15 to 18.")
    } else {
        version.if_not(
            major <= *VERSIONS.end(),
            Level::Warn,
            "This build was not tested with it.",
            "Use 15 to 18, or test.",
        )
    };
    let lost = "What was acknowledged can be lost when the machine fails.";
    vec![
        version,
        HealthCheck::of("primary", if server.in_recovery { "a standby" } else { "a primary" }.into()).if_not(
            !server.in_recovery,
            Level::Bad,
            "Nothing can be written here.",
            "Connect to the primary (in a URL of several hosts: target_session_attrs=read-write).",
        ),
        HealthCheck::of("encoding", server.encoding.clone()).if_not(
            server.encoding == "UTF8",
            Level::Bad,
            "Texts that this encoding lacks are refused.",
            "Make the database with encoding UTF8.",
        ),
        HealthCheck::of("fsync", on(server.fsync)).if_not(
            server.fsync,
            Level::Bad,
            "What was acknowledged can be lost, and the database be damaged, when the machine fails.",
            "Set fsync = on.",
        ),
        HealthCheck::of("full-page-writes", on(server.full_page_writes)).if_not(
            server.full_page_writes,
            Level::Bad,
            "Pages can be damaged when the machine fails in the middle of a write.",
            "Set full_page_writes = on, unless the file system never tears a page.",
        ),
        HealthCheck::of("synchronous-commit", server.synchronous_commit.clone()).if_not(
            server.synchronous_commit != "off",
            Level::Bad,
            lost,
            "Set synchronous_commit = on, also where `alter role` or `alter database` has set it.",
        ),
        HealthCheck::of("isolation", server.isolation.clone()).if_not(
            server.isolation == "read committed",
            Level::Bad,
            "Statements that meet each other are refused instead of waiting: nodes repeat them again and again.",
            "Set default_transaction_isolation = 'read committed' for the role of the nodes.",
        ),
        HealthCheck::of("read-only", on(server.read_only)).if_not(
            !server.read_only,
            Level::Bad,
            "Nothing can be written by this role.",
            "Set default_transaction_read_only = off for the role of the nodes.",
        ),
        HealthCheck::of("autovacuum", on(server.autovacuum && server.track_counts)).if_not(
            server.autovacuum && server.track_counts,
            Level::Warn,
            "Old versions of rows pile up: claims and flushes become slower from hour to hour.",
            "Set autovacuum = on and track_counts = on.",
        ),
        HealthCheck::of(
            "idle-timeout",
            match server.idle_session_timeout_ms {
                0 => "none".into(),
                ms => format!("{ms} ms"),
            },
        )
        .if_not(
            server.idle_session_timeout_ms == 0,
            Level::Warn,
            "Sessions that listen are ended while nothing happens: hints come late.",
            "Set idle_session_timeout = 0 for the role of the nodes.",
        ),
    ]
}

fn connections(server: &Server) -> Vec<HealthCheck> {
    let limit = |check, limit: i32, used: i64, of: &str| {
        let free = i64::from(limit) - used;
        let found = format!("{of} may have {limit} connections and has {used}");
        (limit >= 0).then(|| roomy(HealthCheck::of(check, found), free))
    };
    let free = server.max_connections - server.reserved - server.used;
    let found = format!(
        "{free} of {} are free ({} used, {} reserved); a node uses {NODE_CONNECTIONS}",
        server.max_connections, server.used, server.reserved
    );
    let role = limit("role-limit", server.role_limit, server.role_used, &format!("role `{}`", server.role));
    let database = format!("database `{}`", server.database);
    let database = limit("database-limit", server.database_limit, server.database_used, &database);
    [Some(roomy(HealthCheck::of("connections", found), free)), role, database].into_iter().flatten().collect()
}

fn roomy(check: HealthCheck, free: i64) -> HealthCheck {
    let advice = "Raise the limit, end what holds connections, or run fewer nodes.";
    if free < NODE_CONNECTIONS {
        return check.if_not(false, Level::Bad, "There is no room for another node.", advice);
    }
    let rolling = free >= 2 * NODE_CONNECTIONS;
    check.if_not(rolling, Level::Warn, "There is room for one more node, and none for a client beside it.", advice)
}

fn schema(schema: &Schema, role: &str) -> Vec<HealthCheck> {
    let at = match (schema.there, schema.found) {
        (false, _) => "there is no schema `longhaul`".to_owned(),
        (true, None) => "the role may not read it".to_owned(),
        (true, Some(found)) => format!("at migration {found}; this build needs {}", schema.needed),
    };
    let version = HealthCheck::of("schema", at);
    let version = match schema.found {
        None => version.if_not(false, Level::Bad, "Nodes and clients refuse to start.", "Grant the rights below."),
        Some(found) if found > schema.needed => {
            version.if_not(false, Level::Bad, "This program is older than the schema.", "Update this program.")
        }
        Some(found) => version.if_not(
            schema.there && found == schema.needed,
            Level::Bad,
            "Nodes and clients refuse to start.",
            "Run `longhaul migrate`, or call `longhaul::migrate`, as the role that owns the schema.",
        ),
    };
    let mut checks = vec![version];
    if schema.there {
        checks.push(rights(schema, role));
    }
    let migrates = schema.create && schema.owns;
    let found = format!("role `{role}` {}", if migrates { "may migrate" } else { "may not migrate" });
    checks.push(HealthCheck::of("migrate", found).if_not(
        migrates,
        Level::Warn,
        "Updates of the schema need another role; a node does not.",
        "Run `longhaul migrate` as the owner of the schema (first: with CREATE on the database).",
    ));
    checks
}

fn rights(schema: &Schema, role: &str) -> HealthCheck {
    let mut lacks: Vec<String> = Vec::new();
    if !schema.usage {
        lacks.push("usage on schema longhaul".into());
    }
    lacks.extend(schema.lacks.iter().map(|(right, object)| format!("{right} on {object}")));
    if lacks.is_empty() {
        return HealthCheck::of("rights", format!("role `{role}` has what a node needs"));
    }
    let more = match lacks.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(", and {more} more"),
    };
    lacks.truncate(NAMED);
    HealthCheck::of("rights", format!("role `{role}` lacks {}{more}", lacks.join(", "))).if_not(
        false,
        Level::Bad,
        "Nodes with this role cannot work.",
        "As the owner: grant usage on schema longhaul, and select, insert, update, delete on all tables in it, to the role; \
         alter default privileges for what later migrations make (docs/operating.md has the lines).",
    )
}

fn clock(ahead_ms: i64, error_ms: i64) -> HealthCheck {
    let near = ahead_ms.abs() <= CLOCK_MS.max(2 * error_ms);
    let found = match ahead_ms {
        _ if near => format!("the server's agrees with ours within {} ms", ahead_ms.abs().max(error_ms).max(1)),
        ahead if ahead > 0 => format!("the server's is {ahead} ms ahead of ours"),
        behind => format!("the server's is {} ms behind ours", behind.abs()),
    };
    HealthCheck::of("clock", found).if_not(
        near,
        Level::Warn,
        "No promise rests on it, the database's clock decides; but logs of this machine and the ledger tell other times.",
        "Keep the clocks of all machines in step (NTP). Run this on each machine: it sees only its own and the server's.",
    )
}

fn nodes(nodes: &Nodes) -> HealthCheck {
    let found = match nodes.living {
        0 => "none is alive".to_owned(),
        n => format!("{n} alive, of version {}", nodes.versions.join(" and ")),
    };
    if !nodes.silent.is_empty() {
        let found = format!("{found}; not heard of for longer than its lease: {}", nodes.silent.join(", "));
        return HealthCheck::of("nodes", found).if_not(
            false,
            Level::Warn,
            "It is dead or cut off; a living node takes over what it holds.",
            "If no other node is alive, start one.",
        );
    }
    let build = env!("CARGO_PKG_VERSION");
    HealthCheck::of("nodes", found).if_not(
        nodes.versions.iter().all(|version| version == build),
        Level::Warn,
        "Nodes of another version than this program share the database: fine during an update.",
        "End the update.",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn well() -> Health {
        Health {
            server: Server {
                version_num: 170_004,
                version: "17.4".into(),
                in_recovery: false,
                encoding: "UTF8".into(),
                fsync: true,
                full_page_writes: true,
                synchronous_commit: "on".into(),
                isolation: "read committed".into(),
                read_only: false,
                autovacuum: true,
                track_counts: true,
                idle_session_timeout_ms: 0,
                role: "app".into(),
                database: "app".into(),
                max_connections: 100,
                reserved: 3,
                used: 10,
                role_limit: -1,
                role_used: 10,
                database_limit: -1,
                database_used: 10,
            },
            schema: Schema {
                there: true,
                usage: true,
                create: true,
                owns: true,
                found: Some(9),
                needed: 9,
                lacks: Vec::new(),
            },
            nodes: Some(Nodes { living: 2, versions: vec![env!("CARGO_PKG_VERSION").into()], silent: Vec::new() }),
            sessions: Sessions { settings_kept: true, ..Sessions::default() },
            clock_ahead_ms: 3,
            clock_error_ms: 1,
        }
    }

    /// The check that is not well, if it is one alone.
    fn only(health: &Health) -> (&'static str, Level) {
        let found: Vec<_> = judge(health).into_iter().filter(|check| check.level != Level::Ok).collect();
        match &found[..] {
            [check] => {
                assert!(!check.means.is_empty() && !check.advice.is_empty(), "{check:?}");
                (check.check, check.level)
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_healthy_server_is_well() {
        assert!(judge(&well()).iter().all(|check| check.level == Level::Ok), "{:?}", judge(&well()));
    }

    #[test]
    fn each_disease_is_told_by_its_name_and_nothing_else() {
        type Harm = fn(&mut Health);
        let table: &[(Harm, &str, Level)] = &[
            (|h| h.server.version_num = 140_011, "server-version", Level::Bad),
            (|h| h.server.version_num = 190_000, "server-version", Level::Warn),
            (|h| h.server.in_recovery = true, "primary", Level::Bad),
            (|h| h.server.encoding = "SQL_ASCII".into(), "encoding", Level::Bad),
            (|h| h.server.fsync = false, "fsync", Level::Bad),
            (|h| h.server.full_page_writes = false, "full-page-writes", Level::Bad),
            (|h| h.server.synchronous_commit = "off".into(), "synchronous-commit", Level::Bad),
            (|h| h.server.isolation = "serializable".into(), "isolation", Level::Bad),
            (|h| h.server.read_only = true, "read-only", Level::Bad),
            (|h| h.server.autovacuum = false, "autovacuum", Level::Warn),
            (|h| h.server.track_counts = false, "autovacuum", Level::Warn),
            (|h| h.server.idle_session_timeout_ms = 60_000, "idle-timeout", Level::Warn),
            (|h| h.server.used = 90, "connections", Level::Bad),
            (|h| h.server.used = 85, "connections", Level::Warn),
            (|h| h.server.role_limit = 12, "role-limit", Level::Bad),
            (|h| h.server.database_limit = 20, "database-limit", Level::Warn),
            (|h| h.schema.found = Some(8), "schema", Level::Bad),
            (|h| h.schema.found = Some(10), "schema", Level::Bad),
            (|h| h.schema.found = None, "schema", Level::Bad),
            (|h| (h.schema.there, h.schema.found) = (false, Some(0)), "schema", Level::Bad),
            (|h| h.schema.usage = false, "rights", Level::Bad),
            (|h| h.schema.lacks = vec![("delete".into(), "table longhaul.runs".into())], "rights", Level::Bad),
            (|h| h.schema.owns = false, "migrate", Level::Warn),
            (|h| h.clock_ahead_ms = -90_000, "clock", Level::Warn),
            (|h| h.sessions.settings_kept = false, "session-settings", Level::Warn),
            (|h| h.sessions.moved = true, "pooler", Level::Bad),
            (|h| h.sessions.mixed = true, "pooler", Level::Bad),
            (|h| h.sessions.blocked = true, "pooler", Level::Bad),
            (
                |h| h.nodes = Some(Nodes { living: 1, versions: vec!["9.9.9".into()], silent: vec![] }),
                "nodes",
                Level::Warn,
            ),
            (|h| h.nodes.iter_mut().for_each(|nodes| nodes.silent = vec!["a".into()]), "nodes", Level::Warn),
        ];
        for (harm, check, level) in table {
            let mut health = well();
            harm(&mut health);
            assert_eq!(only(&health), (*check, *level));
        }
    }
}
