//! Enqueueing: set-based, idempotent by run id and digest, an answer per item.

use super::error::StoreError;
use crate::domain::{JsonText, RunKey, RunStatus};
use crate::store::codec::Code;
use sqlx::PgPool;
use std::borrow::Cow;
use std::collections::HashMap;

/// A run to be made.
#[derive(Debug, Clone)]
pub(crate) struct NewRun {
    pub run_id: String,
    pub workflow: i32,
    pub entry: Cow<'static, str>,
    pub input: JsonText,
    pub digest: [u8; 32],
}

/// What became of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Made {
    /// It is new.
    Created(RunKey),
    /// The same was enqueued before; it may have moved on.
    Existing(RunKey, RunStatus),
    /// Another input stands under that id.
    Duplicate,
}

/// Makes runs, and answers each in order. The same ids may come twice in one call.
pub(super) async fn enqueue(pool: &PgPool, runs: &[NewRun]) -> Result<Vec<Made>, StoreError> {
    // The same id twice in one statement: the first one counts, the others are compared with it afterwards.
    let mut first: HashMap<&str, usize> = HashMap::with_capacity(runs.len());
    for (k, run) in runs.iter().enumerate() {
        first.entry(&run.run_id).or_insert(k);
    }
    let mut order: Vec<usize> = first.values().copied().collect();
    // Every statement inserts in the order of ids, so that two of them never wait for each other in a circle.
    order.sort_unstable_by(|a, b| runs[*a].run_id.cmp(&runs[*b].run_id));
    let mut made = insert(pool, runs, &order).await?;

    let missing: Vec<String> =
        order.iter().filter(|k| !made.contains_key(&**k)).map(|k| runs[*k].run_id.clone()).collect();
    let known = if missing.is_empty() { HashMap::new() } else { existing(pool, &missing).await? };
    let mut answers = Vec::with_capacity(runs.len());
    for (k, run) in runs.iter().enumerate() {
        if let Some(key) = made.remove(&k) {
            answers.push(Made::Created(key));
            continue;
        }
        // The first one under that id in this call, if it made the run; else what stands there already.
        let made_first = first.get(run.run_id.as_str()).filter(|f| **f != k).and_then(|f| match answers.get(*f) {
            Some(Made::Created(key)) => Some((*key, RunStatus::Runnable, runs[*f].digest)),
            _ => None,
        });
        answers.push(match made_first.or_else(|| known.get(&run.run_id).copied()) {
            Some((key, status, digest)) if digest == run.digest => Made::Existing(key, status),
            _ => Made::Duplicate,
        });
    }
    Ok(answers)
}

/// Inserts those at `order`; answers the keys of the ones that are new, by their place.
async fn insert(pool: &PgPool, runs: &[NewRun], order: &[usize]) -> Result<HashMap<usize, RunKey>, StoreError> {
    let of = |f: fn(&NewRun) -> &str| order.iter().map(|k| f(&runs[*k])).collect::<Vec<&str>>();
    let place: Vec<i32> = order.iter().map(|k| *k as i32).collect();
    let workflow: Vec<i32> = order.iter().map(|k| runs[*k].workflow).collect();
    let digest: Vec<&[u8]> = order.iter().map(|k| &runs[*k].digest[..]).collect();
    let payload: Vec<String> = order
        .iter()
        .map(|k| {
            let (bytes, sha256) = (runs[*k].input.as_str().len(), crate::domain::json::hex(&runs[*k].digest));
            format!(r#"{{"bytes":{bytes},"sha256":"{sha256}"}}"#)
        })
        .collect();
    let rows = sqlx::query!(
        r#"
with item as materialized (
    select * from unnest($1::int[], $2::text[], $3::int[], $4::text[], $5::text[], $6::bytea[], $7::text[])
        as i (place, run_id, workflow, entry, input, digest, payload)
),
made as (
    insert into longhaul.runs (run_id, workflow, status, ready_at, cursor, input_bytes, step)
    select run_id, workflow, 1, longhaul.now(), 1, octet_length(input), entry from item
    on conflict (run_id) do nothing
    returning id, run_id
),
keyed as materialized (select m.id, i.* from made m join item i using (run_id)),
bodies as (insert into longhaul.inputs (run, digest, body) select id, digest, input::json from keyed),
told as (
    insert into longhaul.events (run, ordinal, nonce, type, payload)
    select id, 0, longhaul.nonce(), 1, payload::json from keyed
)
select place as "place!", id as "id!" from keyed
"#,
        &place,
        &of(|r| &r.run_id) as _,
        &workflow,
        &of(|r| r.entry.as_ref()) as _,
        &of(|r| r.input.as_str()) as _,
        &digest as _,
        &payload
    )
    .fetch_all(pool)
    .await?;
    Ok(rows.into_iter().map(|r| (r.place as usize, RunKey(r.id))).collect())
}

/// What stands under these ids. A statement of its own, so that a run which another transaction made meanwhile is seen.
async fn existing(
    pool: &PgPool,
    run_ids: &[String],
) -> Result<HashMap<String, (RunKey, RunStatus, [u8; 32])>, StoreError> {
    let rows = sqlx::query!(
        "select r.run_id, r.id, r.status, i.digest from longhaul.runs r join longhaul.inputs i on i.run = r.id
         where r.run_id = any($1)",
        run_ids
    )
    .fetch_all(pool)
    .await?;
    rows.into_iter()
        .map(|r| {
            let digest = r.digest.try_into().map_err(|_| StoreError::Corrupt("a digest has not 32 bytes".into()))?;
            Ok((r.run_id, (RunKey(r.id), RunStatus::decode(r.status), digest)))
        })
        .collect()
}
