//! When the next run will be due.

use super::error::StoreError;
use sqlx::PgPool;

/// In how many milliseconds the next run of these workflows that is not due yet will be.
pub(super) async fn next_ready(pool: &PgPool, workflows: &[i32]) -> Result<Option<i64>, StoreError> {
    let ms = sqlx::query_scalar!(
        r#"
select (extract(epoch from min(n.ready_at) - longhaul.now()) * 1000)::bigint as ms
from unnest($1::int[]) as w (id)
cross join lateral (
    select r.ready_at from longhaul.runs r
    where r.workflow = w.id and r.ready_at is not null and r.ready_at > longhaul.now()
    order by r.ready_at limit 1
) n
"#,
        workflows
    )
    .fetch_one(pool)
    .await?;
    Ok(ms)
}
