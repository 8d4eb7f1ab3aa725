//! Damage on purpose: one broken rule for each check of the audit, so that tests, and whoever wants to see it with their own
//! eyes, can watch the audit find it. Never of use on a database that matters.

use super::connect::Database;
use super::error::StoreError;
use sqlx::Connection;

/// Why nothing was planted.
#[derive(Debug, thiserror::Error)]
pub enum PlantError {
    /// There is no plant of that name.
    #[error("there is no plant `{0}`: take one of {list}", list = names().join(", "))]
    Unknown(String),
    /// The database refused; also when it holds nothing to plant on.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The plants: each has the name of the check that finds it.
pub fn names() -> &'static [&'static str] {
    const NAMES: [&str; PLANTS.len()] = {
        let mut names = [""; PLANTS.len()];
        let mut k = 0;
        while k < names.len() {
            names[k] = PLANTS[k].0;
            k += 1;
        }
        names
    };
    &NAMES
}

/// Breaks one rule, in one transaction.
///
/// # Errors
/// [`PlantError`] when there is no such plant, or nothing to plant it on: most need a completed run, some one that a model
/// answered.
pub async fn plant(database: &Database, name: &str) -> Result<(), PlantError> {
    let Some((_, sql)) = PLANTS.iter().find(|(plant, _)| *plant == name) else {
        return Err(PlantError::Unknown(name.to_owned()));
    };
    let mut conn = database.connect().await?;
    let mut tx = conn.begin().await.map_err(StoreError::from)?;
    sqlx::raw_sql(*sql).execute(&mut *tx).await.map_err(StoreError::from)?;
    tx.commit().await.map_err(StoreError::from)?;
    Ok(())
}

const PLANTS: &[(&str, &str)] = &[
    // The first event of a run's ledger is gone.
    (
        "ordinals-gapless",
        "do $$ begin
             delete from longhaul.events
             where ordinal = 0 and run = (select max(id) from longhaul.runs where status = 5);
             if not found then raise exception 'no run is completed: nothing to plant on'; end if;
         end $$",
    ),
    // An event was caused by one that never was.
    (
        "causes-exist",
        "do $$ begin
             update longhaul.events e set cause_run = e.run, cause_ordinal = 0, cause_nonce = -1
             from longhaul.runs r
             where r.id = (select max(id) from longhaul.runs where status = 5) and e.run = r.id
                 and e.ordinal = r.cursor - 1;
             if not found then raise exception 'no run is completed: nothing to plant on'; end if;
         end $$",
    ),
    // An event was caused by the one after it.
    (
        "causes-precede",
        "do $$ begin
             update longhaul.events e set cause_run = c.run, cause_ordinal = c.ordinal, cause_nonce = c.nonce
             from longhaul.events c
             where e.run = (select max(id) from longhaul.runs where status = 5) and e.ordinal = 0
                 and c.run = e.run and c.ordinal = 1;
             if not found then raise exception 'no run is completed: nothing to plant on'; end if;
         end $$",
    ),
    // A run is owned by a node that never was.
    (
        "owner-alive",
        "with made as (
             insert into longhaul.runs (run_id, workflow, status, owner, fence, cursor, input_bytes, step, starts)
             select 'planted-' || gen_random_uuid(), coalesce((select min(id) from longhaul.workflow_versions), 0), 2,
                 gen_random_uuid(), 1, 2, 4, 'planted', 1
             returning id
         ),
         input as (insert into longhaul.inputs (run, digest, body) select id, sha256('planted'), 'null' from made)
         insert into longhaul.events (run, ordinal, nonce, type, payload)
         select id, 0, longhaul.nonce(), 1, '{}'::json from made
         union all select id, 1, longhaul.nonce(), 20, '{\"step\":\"planted\"}'::json from made",
    ),
    // A run waits on a request that is said to be sent, but is in no batch.
    (
        "open-has-reason",
        "with made as (
             insert into longhaul.runs (run_id, workflow, status, wait, fence, cursor, input_bytes, step)
             select 'planted-' || gen_random_uuid(), coalesce((select min(id) from longhaul.workflow_versions), 0), 3, 3,
                 1, 4, 4, 'planted'
             returning id
         ),
         input as (insert into longhaul.inputs (run, digest, body) select id, sha256('planted'), 'null' from made),
         wait as (
             insert into longhaul.waits (run, ordinal, kind, status, provider, attempt, bytes)
             select id, 3, 1, 3, 'planted', 1, 4 from made
         ),
         request as (insert into longhaul.requests (run, ordinal, body) select id, 3, 'null' from made)
         insert into longhaul.events (run, ordinal, nonce, type, payload)
         select id, 0, longhaul.nonce(), 1, '{}'::json from made
         union all select id, 1, longhaul.nonce(), 20, '{\"step\":\"planted\"}'::json from made
         union all select id, 2, longhaul.nonce(), 21, '{\"step\":\"planted\"}'::json from made
         union all select id, 3, longhaul.nonce(), 30, '{}'::json from made",
    ),
    // A run that is over has an open wait.
    (
        "wait-agrees",
        "do $$ begin
             with victim as (select max(id) as id from longhaul.runs where status = 5),
             request as (
                 insert into longhaul.requests (run, ordinal, body) select id, 0, 'null' from victim where id is not null
             )
             insert into longhaul.waits (run, ordinal, kind, status, queued_at, bytes)
             select id, 0, 6, 1, longhaul.now(), 4 from victim where id is not null;
             if not found then raise exception 'no run is completed: nothing to plant on'; end if;
         end $$",
    ),
    // An answer was lost.
    (
        "items-booked-once",
        "alter table longhaul.batch_items drop constraint if exists batch_items_paid_has_line;
         do $$ begin
             update longhaul.batch_items set line = null
             where (batch, item) = (
                 select batch, item from longhaul.batch_items where status = 3 order by batch desc, item desc limit 1
             );
             if not found then raise exception 'no request is answered: nothing to plant on'; end if;
         end $$",
    ),
    // A request is booked with a token too many. Found only with the provider's ledger.
    (
        "ledger-of-provider",
        "do $$ begin
             update longhaul.batch_items set input_tokens = coalesce(input_tokens, 0) + 1
             where (batch, item) = (
                 select batch, item from longhaul.batch_items where status = 3 order by batch desc, item desc limit 1
             );
             if not found then raise exception 'no request is answered: nothing to plant on'; end if;
         end $$",
    ),
    // A run that completed is said to have failed.
    (
        "state-agrees",
        "do $$ begin
             with victim as (
                 update longhaul.runs set status = 6 where id = (select max(id) from longhaul.runs where status = 5)
                 returning id
             )
             update longhaul.outputs o set body = null, error = '{}' from victim v where o.run = v.id;
             if not found then raise exception 'no run is completed: nothing to plant on'; end if;
         end $$",
    ),
    // Something was told of a run after its end.
    (
        "nothing-after-the-end",
        "do $$ begin
             with victim as (
                 update longhaul.runs set cursor = cursor + 1
                 where id = (select max(id) from longhaul.runs where status = 5) returning id, cursor
             )
             insert into longhaul.events (run, ordinal, nonce, type, payload)
             select id, cursor - 1, longhaul.nonce(), 1000, '{\"type\":\"planted\",\"data\":null}' from victim;
             if not found then raise exception 'no run is completed: nothing to plant on'; end if;
         end $$",
    ),
    // A step completed that was never started.
    (
        "steps-pair",
        "do $$ begin
             update longhaul.events set type = 1000
             where (run, ordinal) = (
                 select run, ordinal from longhaul.events
                 where run = (select max(id) from longhaul.runs where status = 5) and type = 20
                 order by ordinal desc limit 1
             );
             if not found then raise exception 'no run is completed: nothing to plant on'; end if;
         end $$",
    ),
    // A batch that is over is held by a node.
    (
        "fences-and-leases",
        "do $$ begin
             update longhaul.batches set owner = gen_random_uuid()
             where id = (select max(id) from longhaul.batches where status = 8);
             if not found then raise exception 'no batch is settled: nothing to plant on'; end if;
         end $$",
    ),
    // A branch that never was.
    (
        "joins-agree",
        "do $$ begin
             insert into longhaul.fork_branches (run, child, ordinal, branch, name)
             select max(id), -1, 0, 0, 'planted' from longhaul.runs having max(id) is not null;
             if not found then raise exception 'there is no run: nothing to plant on'; end if;
         end $$",
    ),
    // One run too many is counted.
    (
        "counts-agree",
        "insert into longhaul.run_counts (workflow, branch, status, n) values (1, false, 5, 1)",
    ),
    // Something was spent that nothing was bought for.
    (
        "money-agrees",
        "insert into longhaul.spent values (current_date, 1, 'planted', '', 1, 0, 0, 1, 0, 0, 0, 0, 0)",
    ),
    // A run has lost its input. Branches have none of their own.
    (
        "bodies-present",
        "do $$ begin
             delete from longhaul.inputs
             where run = (select max(id) from longhaul.runs where status = 5 and parent is null);
             if not found then raise exception 'no run is completed: nothing to plant on'; end if;
         end $$",
    ),
];
