//! The registry of workflow versions and their steps.

use super::error::StoreError;
use sqlx::PgPool;

/// Registers a version with its sorted step names, and answers its key.
///
/// # Errors
/// [`StoreError::WorkflowDrift`] when the same version was registered with other steps.
pub(super) async fn register(
    pool: &PgPool,
    name: &str,
    version: u32,
    steps: &[String],
    entry: &str,
) -> Result<i32, StoreError> {
    let number = i32::try_from(version).unwrap_or(i32::MAX);
    // Looked up first: an insert that conflicts would use up a key each time.
    let known = match find(pool, name, number).await? {
        Some(known) => known,
        None => {
            sqlx::query!(
                "insert into longhaul.workflow_versions (name, version, steps, entry) values ($1, $2, $3, $4)
                 on conflict do nothing",
                name,
                number,
                steps,
                entry
            )
            .execute(pool)
            .await?;
            // A statement of its own: what another transaction inserted meanwhile is not in the first one's snapshot.
            let lost = || StoreError::Corrupt(format!("workflow `{name}` version {version} is not registered"));
            find(pool, name, number).await?.ok_or_else(lost)?
        }
    };
    if known.2.is_none() && known.1 == steps {
        // Registered by a build that did not write it down.
        sqlx::query!(
            "update longhaul.workflow_versions set entry = $2 where id = $1 and entry is null",
            known.0,
            entry
        )
        .execute(pool)
        .await?;
    }
    if known.1 == steps { Ok(known.0) } else { Err(StoreError::WorkflowDrift { name: name.to_owned(), version }) }
}

/// Its key, its steps, and the first of them.
type Known = (i32, Vec<String>, Option<String>);

async fn find(pool: &PgPool, name: &str, version: i32) -> Result<Option<Known>, StoreError> {
    let row = sqlx::query!(
        "select id, steps, entry from longhaul.workflow_versions where name = $1 and version = $2",
        name,
        version
    )
    .fetch_optional(pool)
    .await?;
    Ok(row.map(|r| (r.id, r.steps, r.entry)))
}

/// Versions that have runs which are due, but which no living node has registered here: `(name, version, runs)`.
pub(super) async fn unclaimable(pool: &PgPool, known: &[i32]) -> Result<Vec<(String, u32, i64)>, StoreError> {
    let rows = sqlx::query!(
        r#"
select w.name, w.version, q.runs as "runs!" from longhaul.workflow_versions w
cross join lateral (
    select count(*) as runs from (
        select 1 from longhaul.runs r where r.workflow = w.id and r.ready_at is not null limit 1000
    ) as some_runs
) q
where not w.id = any($1) and q.runs > 0
"#,
        known
    )
    .fetch_all(pool)
    .await?;
    Ok(rows.into_iter().map(|r| (r.name, r.version.max(0) as u32, r.runs)).collect())
}
