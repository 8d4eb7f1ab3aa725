//! How many runs there are, without counting them: the tables' triggers write down what every statement changes.

use super::codec::Code;
use super::error::StoreError;
use super::read::Counts;
use crate::domain::RunStatus;
use sqlx::PgPool;

/// How many runs there are of each status: of all, or only of those that were enqueued; of all workflows, or of these versions.
pub(super) async fn counts(pool: &PgPool, enqueued: bool, workflows: Option<&[i32]>) -> Result<Counts, StoreError> {
    let rows = sqlx::query!(
        r#"
select status, sum(n)::bigint as "runs!" from longhaul.run_counts
where (not $1 or not branch) and ($2::int[] is null or workflow = any($2)) group by status
"#,
        enqueued,
        workflows
    )
    .fetch_all(pool)
    .await?;
    let mut counts = Counts::default();
    for row in rows {
        match RunStatus::decode(row.status) {
            RunStatus::Runnable => counts.runnable = row.runs,
            RunStatus::Owned => counts.owned = row.runs,
            RunStatus::Waiting => counts.waiting = row.runs,
            RunStatus::Parked => counts.parked = row.runs,
            RunStatus::Completed => counts.completed = row.runs,
            RunStatus::Failed => counts.failed = row.runs,
            RunStatus::Canceled => counts.canceled = row.runs,
            RunStatus::Unknown(_) => {}
        }
    }
    Ok(counts)
}

/// Adds up what was written down. Two that do it at once take different rows; whoever writes meanwhile waits for neither.
pub(super) async fn fold(pool: &PgPool) -> Result<(), StoreError> {
    sqlx::query!(
        r#"
with taken as (
    delete from longhaul.run_counts c
    where c.ctid = any(array(select ctid from longhaul.run_counts for update skip locked))
    returning c.workflow, c.branch, c.status, c.n
)
insert into longhaul.run_counts (workflow, branch, status, n)
select workflow, branch, status, sum(n) from taken group by 1, 2, 3 having sum(n) <> 0
"#
    )
    .execute(pool)
    .await?;
    Ok(())
}
