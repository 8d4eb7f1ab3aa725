//! One damage at a time, and the checks that see it.

use super::world::World;
use super::{Check, broken};

/// Damages a world, compares the checks that break, and repairs it.
async fn breaks(world: &World, sql: &'static str, checks: &[Check]) {
    world.sql(sql).await;
    let report = world.audit().await;
    assert_eq!(broken(&report), checks, "{sql}\n{report}");
    world.restore().await;
}

#[tokio::test]
async fn ledgers_of_runs() {
    use Check::{CausesExist, CausesPrecede, OrdinalsGapless, StateAgrees, StepsPair};
    let world = World::new().await;
    // A gap in the middle, no events at all, events of no run, one too many.
    breaks(&world, "delete from longhaul.events where run = 1 and type = 33", &[OrdinalsGapless]).await;
    breaks(&world, "delete from longhaul.events where run = 10", &[OrdinalsGapless]).await;
    breaks(
        &world,
        "insert into longhaul.events (run, ordinal, nonce, type, payload) values (77, 0, 1, 1, '{}')",
        &[OrdinalsGapless],
    )
    .await;
    breaks(&world, "update longhaul.runs set cursor = cursor + 1 where id = 1", &[OrdinalsGapless]).await;
    // The last word is gone.
    breaks(
        &world,
        "delete from longhaul.events where run = 1 and type = 2; update longhaul.runs set cursor = cursor - 1 where id = 1",
        &[StateAgrees],
    )
    .await;
    // A cause in another run, that exists, under another nonce, and later.
    let of_run_8 = "update longhaul.events e set cause_run = 1, cause_ordinal = 0, cause_nonce = c.nonce
        from longhaul.events c where e.run = 8 and e.ordinal = 3 and c.run = 1 and c.ordinal = 0";
    breaks(&world, of_run_8, &[]).await;
    breaks(&world, "update longhaul.events set cause_nonce = 5 where cause_nonce is not null", &[CausesExist]).await;
    breaks(
        &world,
        "update longhaul.events e set cause_run = 1, cause_ordinal = c.ordinal, cause_nonce = c.nonce
         from longhaul.events c where e.run = 8 and e.ordinal = 2 and c.run = 1 and c.type = 2",
        &[CausesPrecede],
    )
    .await;
    breaks(
        &world,
        r#"update longhaul.events set payload = '{"step":"third"}' where run = 1 and type = 21 and ordinal = 2"#,
        &[StepsPair],
    )
    .await;
}

#[tokio::test]
async fn owners_and_ends() {
    use Check::{NothingAfterTheEnd, OrdinalsGapless, OwnerAlive, StateAgrees};
    let world = World::new().await;
    breaks(&world, "update longhaul.runs set owner = gen_random_uuid() where id = 8", &[OwnerAlive]).await;
    breaks(
        &world,
        "alter table longhaul.runs drop constraint if exists runs_owner_iff_owned;
         update longhaul.runs set owner = null where id = 8",
        &[OwnerAlive],
    )
    .await;
    breaks(
        &world,
        "alter table longhaul.runs drop constraint if exists runs_owner_iff_owned;
         update longhaul.runs set owner = gen_random_uuid() where id = 1",
        &[OwnerAlive],
    )
    .await;
    breaks(&world, "update longhaul.runs set step = 'other' where id = 8", &[StateAgrees]).await;
    breaks(&world, "delete from longhaul.outputs where run = 1", &[StateAgrees]).await;
    breaks(&world, "insert into longhaul.outputs (run, body) values (9, '1')", &[StateAgrees]).await;
    breaks(
        &world,
        "update longhaul.events set type = 20 where run = 1 and ordinal = (select cursor - 1 from longhaul.runs where id = 1)",
        &[StateAgrees],
    )
    .await;
    breaks(&world, "update longhaul.events set type = 2 where run = 1 and type = 33", &[NothingAfterTheEnd]).await;
    // A type that only a newer version knows says nothing.
    breaks(&world, "update longhaul.events set type = 2000 where run = 9 and type = 22", &[]).await;
    breaks(&world, "insert into longhaul.inputs values (77, sha256('a'), '1')", &[Check::BodiesPresent]).await;
    breaks(&world, "delete from longhaul.requests where run = 2", &[Check::BodiesPresent]).await;
    breaks(&world, "delete from longhaul.runs where id = 9", &[OrdinalsGapless, Check::BodiesPresent]).await;
}

#[tokio::test]
async fn waits_and_what_moves_them() {
    use Check::{ItemsBookedOnce, OpenHasReason, StateAgrees, WaitAgrees};
    let world = World::new().await;
    // The waits of runs 4 (queued again), 5 (sent), 6 (open again), 2 (applied), 1 (its run is over).
    breaks(&world, "delete from longhaul.waits where run = 5", &[OpenHasReason]).await;
    breaks(&world, "update longhaul.waits set status = 4 where run = 5", &[OpenHasReason, ItemsBookedOnce]).await;
    breaks(&world, "update longhaul.waits set status = 8 where run = 5", &[OpenHasReason]).await;
    breaks(
        &world,
        "update longhaul.batches set status = 8, check_at = null where id = 2",
        &[OpenHasReason, ItemsBookedOnce, Check::FencesAndLeases],
    )
    .await;
    breaks(
        &world,
        "update longhaul.batch_items set status = 4, settled_at = longhaul.now() where batch = 2",
        &[OpenHasReason],
    )
    .await;
    breaks(&world, "update longhaul.waits set item = 7 where run = 5", &[OpenHasReason]).await;
    breaks(&world, "update longhaul.batches set check_at = null where id = 2", &[OpenHasReason]).await;
    breaks(&world, "update longhaul.batches set check_at = longhaul.now() where id = 1", &[OpenHasReason]).await;
    breaks(&world, "update longhaul.runs set wait = 1 where id = 5", &[OpenHasReason, WaitAgrees]).await;
    breaks(
        &world,
        "update longhaul.runs set status = 1, ready_at = longhaul.now() where id = 5",
        &[WaitAgrees, StateAgrees],
    )
    .await;
    breaks(&world, "update longhaul.events set type = 1000 where run = 1 and type = 30", &[WaitAgrees]).await;
    breaks(
        &world,
        "update longhaul.waits set run = 77 where run = 6",
        &[OpenHasReason, WaitAgrees, Check::BodiesPresent],
    )
    .await;
    breaks(
        &world,
        "alter table longhaul.runs drop constraint if exists runs_parked_has_reason, drop constraint if exists runs_ready_iff_runnable;
         update longhaul.runs set reason = null, ready_at = null where id in (9, 10)",
        &[OpenHasReason],
    )
    .await;
}

#[tokio::test]
async fn money() {
    use Check::MoneyAgrees;
    let world = World::new().await;
    breaks(&world, "update longhaul.spent set nano_usd = nano_usd + 1", &[MoneyAgrees]).await;
    breaks(
        &world,
        "update longhaul.waits set held_by = 77 where (run, ordinal) =
             (select run, ordinal from longhaul.waits where queued_at is not null and kind = 1 limit 1)",
        &[MoneyAgrees],
    )
    .await;
    let live = "insert into longhaul.live_calls (run, wait, attempt, account, node, status, settled_at, nano_usd)
        select 1, 1, 1, id, gen_random_uuid(), 3, longhaul.now(), 5 from longhaul.accounts";
    breaks(&world, live, &[MoneyAgrees]).await;
}

#[tokio::test]
async fn batches_and_items() {
    use Check::{FencesAndLeases, ItemsBookedOnce, LedgerOfProvider};
    let world = World::new().await;
    breaks(&world, "update longhaul.batches set n = n + 1 where id = 2", &[ItemsBookedOnce]).await;
    breaks(&world, "update longhaul.batch_items set item = 3 where batch = 3", &[ItemsBookedOnce]).await;
    breaks(
        &world,
        "alter table longhaul.batch_items drop constraint if exists batch_items_settled_iff_over;
         update longhaul.batch_items set settled_at = null where batch = 1 and item = 2",
        &[ItemsBookedOnce],
    )
    .await;
    breaks(
        &world,
        "alter table longhaul.batch_items drop constraint if exists batch_items_settled_iff_over;
         update longhaul.batch_items set settled_at = longhaul.now() where batch = 2",
        &[ItemsBookedOnce],
    )
    .await;
    breaks(&world, "update longhaul.waits set item = 3 where run = 1", &[ItemsBookedOnce]).await;
    breaks(&world, "delete from longhaul.batches where id = 3", &[ItemsBookedOnce]).await;
    // Answered by two items: one in each batch.
    breaks(
        &world,
        "insert into longhaul.batch_items (batch, run, item, wait, attempt, status, settled_at, line)
         select 2, run, 1, wait, 2, 3, settled_at, line from longhaul.batch_items where batch = 1 and item = 0;
         update longhaul.batches set n = 2 where id = 2",
        &[ItemsBookedOnce, LedgerOfProvider],
    )
    .await;
    breaks(&world, "update longhaul.batches set lease = 9 where id = 2", &[FencesAndLeases]).await;
    breaks(&world, "update longhaul.batches set owner = gen_random_uuid() where id = 2", &[FencesAndLeases]).await;
    breaks(&world, "update longhaul.accounts set owner = gen_random_uuid()", &[FencesAndLeases]).await;
    breaks(&world, "delete from longhaul.accounts", &[FencesAndLeases]).await;
}
