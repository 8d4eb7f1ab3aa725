//! The questions that people have to answer.

use super::error::StoreError;
use sqlx::PgPool;
use sqlx::types::chrono::{DateTime, Utc};

/// An open question to a person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Asked {
    pub run_id: String,
    pub asked_at: DateTime<Utc>,
    /// When it will be answered by what was agreed on.
    pub until: Option<DateTime<Utc>>,
    pub body: String,
}

/// Open questions to people, the oldest first. It goes through the open waits that no model answers, and stops when it has
/// enough.
pub(super) async fn open(pool: &PgPool, limit: i64) -> Result<Vec<Asked>, StoreError> {
    // Human: 3. A question whose time is over is about to be answered by time.
    let rows = sqlx::query_as!(
        Asked,
        r#"
select r.run_id, w.opened_at as asked_at, w.due_at as "until?", q.body::text as "body!"
from longhaul.waits w
join longhaul.runs r on r.id = w.run and r.status = 3 and r.wait = w.ordinal
join longhaul.requests q on q.run = w.run and q.ordinal = w.ordinal
where w.provider is null and w.queued_at is not null and w.kind = 3 and (w.due_at is null or w.due_at > longhaul.now())
order by w.queued_at, w.run limit $1
"#,
        limit
    )
    .fetch_all(pool)
    .await?;
    Ok(rows)
}
