//! Looking at runs: one by its id, or many by what they have in common. A list is found in two steps. The first walks an index
//! downwards from a key and answers keys, at most so many whatever is asked for; the second looks at those runs and leaves out
//! what does not fit. Each is bounded however large the tables are.

use super::codec::Code;
use super::error::StoreError;
use super::read::RunView;
use crate::domain::{RunKey, RunStatus, WaitKind, WaitStatus};
use sqlx::PgPool;
use sqlx::types::Uuid;
use sqlx::types::chrono::{DateTime, Utc};

/// Which runs. What is not said does not matter.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Wanted {
    /// Keys of workflow versions.
    pub workflows: Option<Vec<i32>>,
    pub statuses: Vec<RunStatus>,
    pub tag: Option<String>,
    pub newer_than: Option<DateTime<Utc>>,
    pub older_than: Option<DateTime<Utc>>,
    pub waits_for: Option<WaitKind>,
    /// Without branches.
    pub roots: bool,
}

/// The newest keys below `before`, at most `limit`, of runs with a tag. Branches have none of their own.
pub(super) async fn tagged(pool: &PgPool, tag: &str, before: i64, limit: i64) -> Result<Vec<i64>, StoreError> {
    let keys = sqlx::query_scalar!(
        "select run from longhaul.run_tags where tag = $1 and run < $2 order by run desc limit $3",
        tag,
        before,
        limit
    );
    Ok(keys.fetch_all(pool).await?)
}

/// The newest keys below `before`, at most `limit`, of runs of these workflows that are any of these, completed not among them.
/// Those that wait or are in trouble are read from their own index; the others are what queues and nodes hold.
pub(super) async fn open(
    pool: &PgPool,
    workflows: &[i32],
    statuses: &[i16],
    before: i64,
    limit: i64,
) -> Result<Vec<i64>, StoreError> {
    let keys = sqlx::query_scalar!(
        r#"
select c.id as "id!" from (
    select l.id from unnest($1::int[]) as w (id) cross join unnest($2::smallint[]) as s (status)
    cross join lateral (
        select r.id from longhaul.runs r
        where r.workflow = w.id and r.listed = s.status and r.listed is not null and r.id < $3
        order by r.id desc limit $4
    ) l
    union all
    select q.id from unnest($1::int[]) as w (id) cross join lateral (
        select r.id from longhaul.runs r
        where r.workflow = w.id and r.ready_at is not null and r.id < $3 and 1 = any($2)
        order by r.id desc limit $4
    ) q
    union all
    select h.id from longhaul.runs h
    where h.owner is not null and h.workflow = any($1) and h.id < $3 and 2 = any($2)
) c
order by c.id desc limit $4
"#,
        workflows,
        statuses,
        before,
        limit
    );
    Ok(keys.fetch_all(pool).await?)
}

/// The newest keys below `before`, at most `limit`, of all runs.
pub(super) async fn newest(pool: &PgPool, before: i64, limit: i64) -> Result<Vec<i64>, StoreError> {
    let keys =
        sqlx::query_scalar!("select id from longhaul.runs where id < $1 order by id desc limit $2", before, limit);
    Ok(keys.fetch_all(pool).await?)
}

/// A run as the statements below read it.
struct Row {
    id: i64,
    run_id: String,
    name: String,
    version: i32,
    status: i16,
    step: String,
    cursor: i32,
    errors: i16,
    owner: Option<Uuid>,
    created_at: DateTime<Utc>,
    finished_at: Option<DateTime<Utc>>,
    removed_at: Option<DateTime<Utc>>,
    reason: Option<String>,
    parent: Option<i64>,
    kind: Option<i16>,
    wait_status: Option<i16>,
    metadata: Option<String>,
    tags: Vec<String>,
}

impl From<Row> for RunView {
    fn from(r: Row) -> Self {
        Self {
            key: RunKey(r.id),
            run_id: r.run_id,
            workflow: r.name,
            version: r.version.max(0) as u32,
            status: RunStatus::decode(r.status),
            step: r.step,
            events: r.cursor,
            errors: r.errors.max(0) as u32,
            owner: r.owner,
            created_at: r.created_at,
            finished_at: r.finished_at,
            removed_at: r.removed_at,
            reason: r.reason,
            parent: r.parent.map(RunKey),
            wait: r.kind.zip(r.wait_status).map(|(k, s)| (WaitKind::decode(k), WaitStatus::decode(s))),
            tags: r.tags,
            metadata: r.metadata,
        }
    }
}

/// A run by its id.
pub(super) async fn run(pool: &PgPool, run_id: &str) -> Result<Option<RunView>, StoreError> {
    let row = sqlx::query_as!(
        Row,
        r#"
select r.id, r.run_id, v.name, v.version, r.status, r.step, r.cursor, r.errors, r.owner, r.created_at, r.finished_at, r.removed_at,
    r.reason, r.parent, w.kind as "kind?", w.status as "wait_status?", i.metadata::text as metadata,
    array(select t.tag from longhaul.run_tags t where t.run = coalesce(r.root, r.id) order by t.tag) as "tags!"
from longhaul.runs r
join longhaul.workflow_versions v on v.id = r.workflow
left join longhaul.waits w on w.run = r.id and w.ordinal = r.wait
left join longhaul.inputs i on i.run = coalesce(r.input_of, r.id)
where r.run_id = $1
"#,
        run_id
    )
    .fetch_optional(pool)
    .await?;
    Ok(row.map(RunView::from))
}

/// Those of these runs that fit, the newest first, at most `limit`.
pub(super) async fn views(
    pool: &PgPool,
    keys: &[i64],
    wanted: &Wanted,
    limit: i64,
) -> Result<Vec<RunView>, StoreError> {
    let statuses: Vec<i16> = wanted.statuses.iter().map(|s| s.code()).collect();
    let rows = sqlx::query_as!(
        Row,
        r#"
select r.id, r.run_id, v.name, v.version, r.status, r.step, r.cursor, r.errors, r.owner, r.created_at, r.finished_at, r.removed_at,
    r.reason, r.parent, w.kind as "kind?", w.status as "wait_status?", i.metadata::text as metadata,
    array(select t.tag from longhaul.run_tags t where t.run = coalesce(r.root, r.id) order by t.tag) as "tags!"
from longhaul.runs r
join longhaul.workflow_versions v on v.id = r.workflow
left join longhaul.waits w on w.run = r.id and w.ordinal = r.wait
left join longhaul.inputs i on i.run = coalesce(r.input_of, r.id)
where r.id = any($1)
    and ($2::int[] is null or r.workflow = any($2))
    and (cardinality($3::smallint[]) = 0 or r.status = any($3))
    and ($4::timestamptz is null or r.created_at > $4)
    and ($5::timestamptz is null or r.created_at < $5)
    and ($6::smallint is null or r.status = 3 and w.kind = $6)
    and (not $7 or r.parent is null)
order by r.id desc limit $8
"#,
        keys,
        wanted.workflows.as_deref() as _,
        &statuses,
        wanted.newer_than as _,
        wanted.older_than as _,
        wanted.waits_for.map(Code::code) as _,
        wanted.roots,
        limit
    )
    .fetch_all(pool)
    .await?;
    Ok(rows.into_iter().map(RunView::from).collect())
}

/// The keys of the versions of a workflow, or of all.
pub(super) async fn workflow_keys(pool: &PgPool, name: Option<&str>) -> Result<Vec<i32>, StoreError> {
    let keys = sqlx::query_scalar!(
        "select id from longhaul.workflow_versions where $1::text is null or name = $1 order by id",
        name as _
    );
    Ok(keys.fetch_all(pool).await?)
}

/// When a run was made.
pub(super) async fn made_at(pool: &PgPool, key: i64) -> Result<Option<DateTime<Utc>>, StoreError> {
    Ok(sqlx::query_scalar!("select created_at from longhaul.runs where id = $1", key).fetch_optional(pool).await?)
}
