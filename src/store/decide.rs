//! Deciding an unknown COMMIT. Looking is not enough: a transaction in doubt may become visible a moment later. So the rows
//! are locked (which waits for it), then read, and the fence of every row whose transition is not in is raised: from then on
//! it can never get in.

use super::connect::Backend;
use super::error::StoreError;
use crate::domain::{Transition, Verdict};
use sqlx::{Connection, PgConnection};

/// Decides each of these transitions, on a connection other than the one that lost the answer. `doubtful` is that one's
/// backend, ended first if it can be.
pub(super) async fn decide(
    conn: &mut PgConnection,
    doubtful: Option<Backend>,
    transitions: &[Transition],
) -> Result<Vec<Verdict>, StoreError> {
    if let Some(backend) = doubtful {
        // Only speeds things up: the row locks below decide, and a role may not be allowed to end backends.
        let _ = sqlx::query_scalar!(
            "select pg_terminate_backend(pid) from pg_stat_activity where pid = $1 and backend_start = $2",
            backend.pid,
            backend.since
        )
        .fetch_optional(&mut *conn)
        .await;
    }
    let run: Vec<i64> = transitions.iter().map(|t| t.run.0).collect();
    let fence: Vec<i64> = transitions.iter().map(|t| t.fence.0).collect();
    // A transition is in if its last event is: ordinal and nonce name it beyond doubt.
    let ordinal: Vec<i32> = transitions.iter().map(|t| t.next_cursor() - 1).collect();
    let nonce: Vec<i64> = transitions.iter().map(|t| t.events.last().map_or(0, |e| e.nonce)).collect();

    let mut tx = conn.begin().await?;
    sqlx::query!("select id from longhaul.runs where id = any($1) order by id for update", &run)
        .fetch_all(&mut *tx)
        .await?;
    // A statement of its own: its snapshot is younger than the locks, so it sees what the doubtful transaction did.
    let committed = sqlx::query_scalar!(
        r#"
select e.run as "run!" from unnest($1::bigint[], $2::int[], $3::bigint[]) as t (run, ordinal, nonce)
join longhaul.events e on e.run = t.run and e.ordinal = t.ordinal and e.nonce = t.nonce
"#,
        &run,
        &ordinal,
        &nonce
    )
    .fetch_all(&mut *tx)
    .await?;
    sqlx::query!(
        r#"
-- The process is alive: this start is not one that took it down.
update longhaul.runs r set fence = r.fence + 1, status = 1, owner = null, ready_at = longhaul.now(),
    starts = greatest(r.starts - 1, 0)
from unnest($1::bigint[], $2::bigint[]) as t (run, fence)
where r.id = t.run and r.fence = t.fence and r.status = 2 and not r.id = any($3)
"#,
        &run,
        &fence,
        &committed
    )
    .execute(&mut *tx)
    .await?;
    tx.commit().await?;
    Ok(transitions
        .iter()
        .map(|t| if committed.contains(&t.run.0) { Verdict::Committed } else { Verdict::Superseded })
        .collect())
}
