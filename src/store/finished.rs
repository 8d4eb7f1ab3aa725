//! The ends of runs in an order that readers can follow: by the transaction that wrote them. What a transaction still open may yet
//! write is waited for, so nothing ever appears behind a reader.

use super::error::StoreError;
use sqlx::PgPool;
use sqlx::types::chrono::{DateTime, Utc};

/// A place among the ends: transaction and run.
pub(crate) type Place = (i64, i64);

/// An end.
#[derive(Debug)]
pub(crate) struct End {
    pub place: Place,
    /// What is told of it; `None` when it is not of the workflows that were asked for.
    pub told: Option<Told>,
}

/// What is told of an end.
#[derive(Debug)]
pub(crate) struct Told {
    pub run_id: String,
    pub finished_at: Option<DateTime<Utc>>,
    pub body: Option<String>,
    pub error: Option<String>,
}

/// Ends after a place, at most `limit`, in order. `None`: place or ends are of another server's transactions.
pub(super) async fn after(
    pool: &PgPool,
    workflows: &[i32],
    place: Place,
    limit: i64,
) -> Result<Option<Vec<End>>, StoreError> {
    let rows = sqlx::query!(
        r#"
with horizon as materialized (
    select pg_snapshot_xmin(pg_current_snapshot()) as safe, pg_snapshot_xmax(pg_current_snapshot()) as next
),
-- Nobody can see what a transaction that has not begun has written.
foreigner as (
    select from horizon h where $2::text::xid8 >= h.next
        or (select max(o.finished_in) from longhaul.outputs o) >= h.next
),
scan as materialized (
    select o.finished_in, o.run from longhaul.outputs o
    where (o.finished_in, o.run) > ($2::text::xid8, $3) and o.finished_in < (select safe from horizon)
    order by o.finished_in, o.run limit $4
)
select s.finished_in::text::bigint as "finished_in?", s.run as "run?", r.run_id as "run_id?", r.finished_at,
    case when r.id is not null then o.body::text end as body, case when r.id is not null then o.error::text end as error,
    exists (select from foreigner) as "foreign!"
from horizon h
left join scan s on true
left join longhaul.runs r on r.id = s.run and r.workflow = any($1) and r.parent is null
left join longhaul.outputs o on o.run = r.id
order by s.finished_in, s.run
"#,
        workflows,
        place.0.to_string(),
        place.1,
        limit
    )
    .fetch_all(pool)
    .await?;
    if rows.iter().any(|r| r.foreign) {
        return Ok(None);
    }
    let ends = rows.into_iter().filter_map(|r| {
        let run = r.run?;
        let told = r.run_id.map(|run_id| Told { run_id, finished_at: r.finished_at, body: r.body, error: r.error });
        Some(End { place: (r.finished_in?, run), told })
    });
    Ok(Some(ends.collect()))
}

/// The place behind every end that can be told now.
pub(super) async fn horizon(pool: &PgPool) -> Result<Place, StoreError> {
    let safe = sqlx::query_scalar!(r#"select pg_snapshot_xmin(pg_current_snapshot())::text::bigint - 1 as "safe!""#)
        .fetch_one(pool)
        .await?;
    Ok((safe, i64::MAX))
}
