//! What was spent: added up when a batch is settled, and asked for.

use super::error::StoreError;
use sqlx::PgPool;
use sqlx::types::chrono::NaiveDate;

/// Sums over answers that were paid for. Money is in nano-dollars (a billionth of a dollar), as far as it is known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct CostSums {
    /// Answers.
    pub items: i64,
    /// Answers whose model has no known price; they are in no sum of money.
    pub unpriced: i64,
    /// Answers that nobody had a use for: the run was canceled, or had its answer already; or the answer cannot be read, or is in no
    /// result though it was paid for.
    pub unused: i64,
    /// What all of them cost.
    pub nano_usd: i64,
    /// What those without a use cost; a part of `nano_usd`.
    pub unused_nano_usd: i64,
    /// Tokens read at the full price.
    pub input_tokens: i64,
    /// Tokens written.
    pub output_tokens: i64,
    /// Tokens written into the prompt cache.
    pub cache_write_tokens: i64,
    /// Tokens read from the prompt cache.
    pub cache_read_tokens: i64,
}

impl std::ops::AddAssign for CostSums {
    fn add_assign(&mut self, other: Self) {
        self.items += other.items;
        self.unpriced += other.unpriced;
        self.unused += other.unused;
        self.nano_usd += other.nano_usd;
        self.unused_nano_usd += other.unused_nano_usd;
        self.input_tokens += other.input_tokens;
        self.output_tokens += other.output_tokens;
        self.cache_write_tokens += other.cache_write_tokens;
        self.cache_read_tokens += other.cache_read_tokens;
    }
}

/// The sums of one workflow, account and model.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct CostLine {
    /// The workflow's name.
    pub workflow: String,
    /// The account's id.
    pub account: i32,
    /// The model that answered; empty where the provider did not say.
    pub model: String,
    /// The sums.
    #[serde(flatten)]
    pub sums: CostSums,
}

macro_rules! lines {
    ($rows:expr) => {
        $rows
            .into_iter()
            .map(|r| CostLine {
                workflow: r.workflow,
                account: r.account,
                model: r.model,
                sums: CostSums {
                    items: r.items,
                    unpriced: r.unpriced,
                    unused: r.unused,
                    nano_usd: r.nano_usd,
                    unused_nano_usd: r.unused_nano_usd,
                    input_tokens: r.input_tokens,
                    output_tokens: r.output_tokens,
                    cache_write_tokens: r.cache_write_tokens,
                    cache_read_tokens: r.cache_read_tokens,
                },
            })
            .collect()
    };
}

/// The costs of everything, or of a workflow, or of an account, from a day on: what is summed up, and what is in batches that are not
/// settled yet.
pub(super) async fn all(
    pool: &PgPool,
    workflow: Option<&str>,
    account: Option<i32>,
    since: Option<NaiveDate>,
) -> Result<Vec<CostLine>, StoreError> {
    let rows = sqlx::query!(
        r#"
with each as (
    select workflow, account, model, items, unpriced, unused, nano_usd, unused_nano_usd, input_tokens, output_tokens,
        cache_write_tokens, cache_read_tokens
    from longhaul.spent
    where ($1::text is null or workflow = $1) and ($2::int is null or account = $2) and ($3::date is null or day >= $3)
    union all
    select v.name, b.account, coalesce(i.model, ''), 1, (i.nano_usd is null)::int, (i.status <> 3)::int,
        coalesce(i.nano_usd, 0), case when i.status <> 3 then coalesce(i.nano_usd, 0) else 0 end, coalesce(i.input_tokens, 0),
        coalesce(i.output_tokens, 0), coalesce(i.cache_write_tokens, 0), coalesce(i.cache_read_tokens, 0)
    from longhaul.batches b
    join longhaul.batch_items i on i.batch = b.id and i.status in (3, 8, 9, 10)
    join longhaul.runs r on r.id = i.run
    join longhaul.workflow_versions v on v.id = r.workflow
    where b.status < 8 and ($1::text is null or v.name = $1) and ($2::int is null or b.account = $2)
        and ($3::date is null or i.settled_at >= $3::date::timestamp at time zone 'UTC')
)
select workflow as "workflow!", account as "account!", model as "model!", sum(items)::bigint as "items!",
    sum(unpriced)::bigint as "unpriced!", sum(unused)::bigint as "unused!", sum(nano_usd)::bigint as "nano_usd!",
    sum(unused_nano_usd)::bigint as "unused_nano_usd!", sum(input_tokens)::bigint as "input_tokens!",
    sum(output_tokens)::bigint as "output_tokens!", sum(cache_write_tokens)::bigint as "cache_write_tokens!",
    sum(cache_read_tokens)::bigint as "cache_read_tokens!"
from each group by workflow, account, model order by workflow, account, model
"#,
        workflow,
        account,
        since
    )
    .fetch_all(pool)
    .await?;
    Ok(lines!(rows))
}

/// The costs of one run, or of all runs with a tag, or with those of all branches below, from a day on.
pub(super) async fn of_runs(
    pool: &PgPool,
    run: Option<i64>,
    tag: Option<&str>,
    below: bool,
    since: Option<NaiveDate>,
) -> Result<Vec<CostLine>, StoreError> {
    let rows = sqlx::query!(
        r#"
with recursive tree (run) as (
    select id from longhaul.runs where id = $1
    union all
    select run from longhaul.run_tags where tag = $4
    union all
    select f.child from tree t join longhaul.fork_branches f on f.run = t.run where $2
),
each as (
    select i.run, b.account, i.model, i.status, i.nano_usd, i.input_tokens, i.output_tokens, i.cache_write_tokens,
        i.cache_read_tokens
    from tree t
    join longhaul.batch_items i on i.run = t.run and i.status in (3, 8, 9, 10)
    join longhaul.batches b on b.id = i.batch
    where $3::date is null or i.settled_at >= $3::date::timestamp at time zone 'UTC'
    union all
    select c.run, c.account, c.model, c.status, c.nano_usd, c.input_tokens, c.output_tokens, c.cache_write_tokens,
        c.cache_read_tokens
    from tree t
    join longhaul.live_calls c on c.run = t.run and c.status in (3, 9, 10)
    where $3::date is null or c.settled_at >= $3::date::timestamp at time zone 'UTC'
)
select v.name as "workflow!", i.account as "account!", coalesce(i.model, '') as "model!", count(*) as "items!",
    count(*) filter (where i.nano_usd is null) as "unpriced!", count(*) filter (where i.status <> 3) as "unused!",
    coalesce(sum(i.nano_usd), 0)::bigint as "nano_usd!",
    coalesce(sum(i.nano_usd) filter (where i.status <> 3), 0)::bigint as "unused_nano_usd!",
    coalesce(sum(i.input_tokens), 0)::bigint as "input_tokens!", coalesce(sum(i.output_tokens), 0)::bigint as "output_tokens!",
    coalesce(sum(i.cache_write_tokens), 0)::bigint as "cache_write_tokens!",
    coalesce(sum(i.cache_read_tokens), 0)::bigint as "cache_read_tokens!"
from each i
join longhaul.runs r on r.id = i.run
join longhaul.workflow_versions v on v.id = r.workflow
group by 1, 2, 3 order by 1, 2, 3
"#,
        run as _,
        below,
        since,
        tag
    )
    .fetch_all(pool)
    .await?;
    Ok(lines!(rows))
}

/// Closes a batch whose items are all accounted for, and adds what its answers cost to what was spent; what was reserved for them is
/// free. `false`: some are not.
pub(super) async fn settle(pool: &PgPool, batch: i64, fence: i64) -> Result<bool, StoreError> {
    let settled = sqlx::query_scalar!(
        r#"
with settled as (
    update longhaul.batches b set status = 8, settled_at = longhaul.now(), owner = null, check_at = null
    where b.id = $1 and b.fence = $2 and b.status in (5, 6, 7)
        and not exists (select from longhaul.batch_items i where i.batch = b.id and i.status in (1, 2))
    returning b.id, b.account, (b.settled_at at time zone 'UTC')::date as day
),
booked as (
    insert into longhaul.spent
    select s.day, s.account, v.name, coalesce(i.model, ''), count(*), count(*) filter (where i.nano_usd is null),
        count(*) filter (where i.status <> 3), coalesce(sum(i.nano_usd), 0),
        coalesce(sum(i.nano_usd) filter (where i.status <> 3), 0), coalesce(sum(i.input_tokens), 0),
        coalesce(sum(i.output_tokens), 0), coalesce(sum(i.cache_write_tokens), 0), coalesce(sum(i.cache_read_tokens), 0)
    from settled s
    join longhaul.batch_items i on i.batch = s.id and i.status in (3, 8, 9, 10)
    join longhaul.runs r on r.id = i.run
    join longhaul.workflow_versions v on v.id = r.workflow
    group by s.day, s.account, v.name, coalesce(i.model, '')
    -- Batches that are settled at the same time lock the rows they share in one order.
    order by v.name, coalesce(i.model, '')
    on conflict (workflow, account, day, model) do update set items = spent.items + excluded.items,
        unpriced = spent.unpriced + excluded.unpriced, unused = spent.unused + excluded.unused,
        nano_usd = spent.nano_usd + excluded.nano_usd,
        unused_nano_usd = spent.unused_nano_usd + excluded.unused_nano_usd,
        input_tokens = spent.input_tokens + excluded.input_tokens,
        output_tokens = spent.output_tokens + excluded.output_tokens,
        cache_write_tokens = spent.cache_write_tokens + excluded.cache_write_tokens,
        cache_read_tokens = spent.cache_read_tokens + excluded.cache_read_tokens
),
free as (delete from longhaul.reserved f using settled s where f.batch = s.id)
select exists (select from settled) as "settled!"
"#,
        batch,
        fence
    )
    .fetch_one(pool)
    .await?;
    Ok(settled)
}
