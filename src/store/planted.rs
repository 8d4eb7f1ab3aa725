//! Rows for tests of the reading of results: batches at the provider whose requests runs wait for.

use crate::domain::IntentId;
use crate::store::{HeldBatch, Store};
use sqlx::Row;

/// Items of a planted batch.
pub(crate) const ITEMS: i32 = 3;

/// Plants batches of three items, numbered from 1, each item waited for by a run of its own.
pub(crate) async fn batches(store: &Store, number: i64) -> Vec<HeldBatch> {
    let statements = [
        "insert into longhaul.batches (id, account, intent, status, lease, n, digest, provider_batch_id, submitted_at)
            overriding system value
        select b, 1, md5(b::text)::uuid, 5, 0, 3, '\\x00', 'batch-' || b, longhaul.now() from generate_series(1, $1::bigint) b",
        "insert into longhaul.runs (id, workflow, cursor, wait, input_bytes, status, run_id, step)
        select b * 3 + i, 1, 4, 3, 0, 3, b || '-' || i, 'ask' from generate_series(1, $1::bigint) b, generate_series(0, 2) i",
        "insert into longhaul.waits (run, ordinal, batch, item, bytes, attempt, kind, status, provider)
        select b * 3 + i, 3, b, i, 10, 1, 1, 3, 'claude' from generate_series(1, $1::bigint) b, generate_series(0, 2) i",
        "insert into longhaul.batch_items (batch, run, item, wait, attempt, status)
        select b, b * 3 + i, i, 3, 1, 2 from generate_series(1, $1::bigint) b, generate_series(0, 2) i",
    ];
    for statement in statements {
        sqlx::query(statement).bind(number).execute(store.pool()).await.unwrap();
    }
    let rows =
        sqlx::query("select id, intent from longhaul.batches order by id").fetch_all(store.pool()).await.unwrap();
    let held = rows.into_iter().map(|row| {
        let batch: i64 = row.get(0);
        HeldBatch {
            batch,
            fence: 0,
            intent: IntentId(row.get(1)),
            n: ITEMS,
            provider_batch_id: format!("batch-{batch}"),
            verified: true,
            downloads: 1,
            age_ms: 0,
        }
    });
    held.collect()
}

/// How many items of a batch are settled.
pub(crate) async fn settled(store: &Store, batch: i64) -> i64 {
    let sql = "select count(*) from longhaul.batch_items where batch = $1 and settled_at is not null";
    sqlx::query_scalar(sql).bind(batch).fetch_one(store.pool()).await.unwrap()
}

/// What became of all items with this number in their batches: (status of the item, of its wait, of its run, the run's events), and how
/// many are so.
pub(crate) async fn ends(store: &Store, item: i32) -> Vec<(Vec<i64>, i64)> {
    let sql = "
        select array[i.status, w.status, r.status, e.n, r.cursor - 4, b.status]::bigint[] as state, count(*)
        from longhaul.batch_items i
        join longhaul.batches b on b.id = i.batch
        join longhaul.runs r on r.id = i.run
        join longhaul.waits w on w.run = r.id
        cross join lateral (select count(*) as n from longhaul.events e where e.run = r.id) e
        where i.item = $1 group by 1";
    let rows = sqlx::query(sql).bind(item).fetch_all(store.pool()).await.unwrap();
    rows.into_iter().map(|row| (row.get(0), row.get(1))).collect()
}
