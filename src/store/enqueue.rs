//! Enqueueing: set-based, idempotent by run id and digest, an answer per item.

use super::error::StoreError;
use crate::domain::canonical::digest;
use crate::domain::{JsonText, RunKey, RunStatus};
use crate::store::codec::Code;
use sqlx::{PgConnection, PgPool};
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
    pub tags: Vec<String>,
    pub metadata: Option<JsonText>,
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
    enqueue_on(&mut *pool.acquire().await?, runs).await
}

/// The same on a connection of the caller's, which may be inside a transaction: then the runs are made when that commits.
pub(super) async fn enqueue_on(conn: &mut PgConnection, runs: &[NewRun]) -> Result<Vec<Made>, StoreError> {
    // The same id twice in one statement: the first one counts, the others are compared with it afterwards.
    let mut first: HashMap<&str, usize> = HashMap::with_capacity(runs.len());
    for (k, run) in runs.iter().enumerate() {
        first.entry(&run.run_id).or_insert(k);
    }
    let mut order: Vec<usize> = first.values().copied().collect();
    // Every statement inserts in the order of ids, so that two of them never wait for each other in a circle.
    order.sort_unstable_by(|a, b| runs[*a].run_id.cmp(&runs[*b].run_id));
    let mut made = insert(&mut *conn, runs, &order).await?;

    let missing: Vec<String> =
        order.iter().filter(|k| !made.contains_key(&**k)).map(|k| runs[*k].run_id.clone()).collect();
    let known = if missing.is_empty() { HashMap::new() } else { existing(conn, &missing).await? };
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
            Some(_) => Made::Duplicate,
            // It stands in the way and is not seen: the caller's transaction looks at an older snapshot, or it is gone again.
            None => {
                let message = format!("run `{}` is made by a transaction that this one does not see", run.run_id);
                return Err(StoreError::Transient { code: "40001".into(), message });
            }
        });
    }
    Ok(answers)
}

/// Inserts those at `order`; answers the keys of the ones that are new, by their place.
async fn insert(
    conn: &mut PgConnection,
    runs: &[NewRun],
    order: &[usize],
) -> Result<HashMap<usize, RunKey>, StoreError> {
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
    let metadata: Vec<Option<&str>> = order.iter().map(|k| runs[*k].metadata.as_ref().map(JsonText::as_str)).collect();
    let tagged = || order.iter().flat_map(|k| runs[*k].tags.iter().map(|tag| (*k as i32, tag.as_str())));
    let (tag_place, tag): (Vec<i32>, Vec<&str>) = tagged().unzip();
    let rows = sqlx::query!(
        r#"
with item as materialized (
    select * from unnest($1::int[], $2::text[], $3::int[], $4::text[], $5::text[], $6::bytea[], $7::text[],
        $8::text[]) as i (place, run_id, workflow, entry, input, digest, payload, metadata)
),
made as (
    insert into longhaul.runs (run_id, workflow, status, ready_at, cursor, input_bytes, step)
    select run_id, workflow, 1, longhaul.now(), 1, octet_length(input), entry from item
    on conflict (run_id) do nothing
    returning id, run_id
),
keyed as materialized (select m.id, i.* from made m join item i using (run_id)),
bodies as (
    insert into longhaul.inputs (run, digest, body, metadata) select id, digest, input::json, metadata::json from keyed
),
tagged as (
    insert into longhaul.run_tags (tag, run)
    select t.tag, k.id from unnest($9::int[], $10::text[]) as t (place, tag) join keyed k using (place)
),
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
        &payload,
        &metadata as _,
        &tag_place,
        &tag as _
    )
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(|r| (r.place as usize, RunKey(r.id))).collect())
}

/// What stands under these ids. A statement of its own, so that a run which another transaction made meanwhile is seen.
async fn existing(
    conn: &mut PgConnection,
    run_ids: &[String],
) -> Result<HashMap<String, (RunKey, RunStatus, [u8; 32])>, StoreError> {
    let rows = sqlx::query!(
        r#"
select r.run_id, r.id, r.status, i.digest, v.name, case when i.digest is null then i.body::text end as body
from longhaul.runs r
join longhaul.inputs i on i.run = r.id
join longhaul.workflow_versions v on v.id = r.workflow
where r.run_id = any($1)
"#,
        run_ids
    )
    .fetch_all(conn)
    .await?;
    rows.into_iter()
        .map(|r| {
            let digest = match r.digest {
                Some(digest) => {
                    digest.try_into().map_err(|_| StoreError::Corrupt("a digest has not 32 bytes".into()))?
                }
                // Enqueued by plain SQL. What has no canonical form equals nothing that is enqueued here.
                None => digest(&r.name, &JsonText::stored(r.body.unwrap_or_default())).unwrap_or_default(),
            };
            Ok((r.run_id, (RunKey(r.id), RunStatus::decode(r.status), digest)))
        })
        .collect()
}
