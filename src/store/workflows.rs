//! The registry of workflow versions: their steps, and what their values look like.

use super::error::StoreError;
use crate::run::flow::Manifest;
use sqlx::PgPool;

/// How often a registration is tried anew when others register the same version at the same time.
const TRIES: usize = 8;

/// Who registers a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Registrar {
    /// Whoever enqueues: the version has to have exactly these steps.
    Client,
    /// A node that runs it: also says what its values look like now.
    Node,
    /// A node that adds steps to it.
    Extender,
}

/// What came of a registration.
#[derive(Debug)]
pub(crate) struct Registered {
    pub key: i32,
    /// The manifest that stood there, if another one stands there now.
    pub before: Option<Manifest>,
}

struct Row {
    id: i32,
    steps: Vec<String>,
    manifest: Option<String>,
    fingerprint: Option<String>,
}

/// Registers a version with its sorted step names.
///
/// # Errors
/// [`StoreError::WorkflowDrift`] when the same version was registered with other steps: with some that are not there now, or,
/// unless they are said to be added, without some that are.
pub(super) async fn register(pool: &PgPool, of: &Manifest, by: Registrar) -> Result<Registered, StoreError> {
    let version = i32::try_from(of.version).unwrap_or(i32::MAX);
    let steps: Vec<String> = of.steps.iter().map(|step| step.name.to_string()).collect();
    let unfit = |why: crate::domain::InvalidJson| StoreError::Corrupt(why.to_string());
    let (manifest, fingerprint) = (of.to_json().map_err(unfit)?, of.fingerprint().map_err(unfit)?);
    for _ in 0..TRIES {
        // Looked up first: an insert that conflicts would use up a key each time. And again in a statement of its own: what
        // another transaction inserted meanwhile is not in the first one's snapshot.
        let Some(row) = find(pool, &of.workflow, version).await? else {
            sqlx::query!(
                "insert into longhaul.workflow_versions (name, version, steps, manifest, fingerprint, entry)
                 values ($1, $2, $3, $4::text::json, $5, $6) on conflict do nothing",
                &of.workflow,
                version,
                &steps,
                manifest.as_str(),
                fingerprint,
                &of.entry
            )
            .execute(pool)
            .await?;
            continue;
        };
        let without = |all: &[String], known: &[String]| -> Vec<String> {
            all.iter().filter(|step| !known.contains(step)).cloned().collect()
        };
        let (missing, added) = (without(&row.steps, &steps), without(&steps, &row.steps));
        if !missing.is_empty() || (!added.is_empty() && by != Registrar::Extender) {
            return Err(StoreError::WorkflowDrift {
                name: of.workflow.to_string(),
                version: of.version,
                missing,
                added,
            });
        }
        // Whoever only enqueues does not know what the nodes have by now.
        let says = by != Registrar::Client || row.fingerprint.is_none();
        if added.is_empty() && (!says || row.fingerprint.as_ref() == Some(&fingerprint)) {
            return Ok(Registered { key: row.id, before: None });
        }
        let written = sqlx::query!(
            "update longhaul.workflow_versions set steps = $2, manifest = $3::text::json, fingerprint = $4, entry = $7
             where id = $1 and steps = $5 and fingerprint is not distinct from $6",
            row.id,
            &steps,
            manifest.as_str(),
            fingerprint,
            &row.steps,
            row.fingerprint,
            &of.entry
        )
        .execute(pool)
        .await?;
        if written.rows_affected() == 1 {
            let before = row.manifest.as_deref().and_then(|text| Manifest::from_json(text).ok());
            return Ok(Registered { key: row.id, before });
        }
    }
    Err(StoreError::Corrupt(format!("workflow `{}` version {} cannot be registered", of.workflow, of.version)))
}

async fn find(pool: &PgPool, name: &str, version: i32) -> Result<Option<Row>, StoreError> {
    Ok(sqlx::query_as!(
        Row,
        "select id, steps, manifest::text as manifest, fingerprint from longhaul.workflow_versions
         where name = $1 and version = $2",
        name,
        version
    )
    .fetch_optional(pool)
    .await?)
}

/// A version that is registered.
#[derive(Debug, Clone)]
pub(crate) struct Version {
    pub key: i32,
    pub name: String,
    pub version: u32,
    pub manifest: Option<String>,
}

/// All versions of workflows of these names.
pub(super) async fn versions(pool: &PgPool, names: &[String]) -> Result<Vec<Version>, StoreError> {
    let rows = sqlx::query!(
        "select id, name, version, manifest::text as manifest from longhaul.workflow_versions where name = any($1)
         order by name, version",
        names
    )
    .fetch_all(pool)
    .await?;
    let version = |version: i32| version.max(0) as u32;
    Ok(rows
        .into_iter()
        .map(|r| Version { key: r.id, name: r.name, version: version(r.version), manifest: r.manifest })
        .collect())
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
