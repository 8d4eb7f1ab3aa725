//! What operators do to accounts: look at them, hold them back, let them go on.

use super::error::StoreError;
use sqlx::PgPool;
use sqlx::types::chrono::{DateTime, Utc};

/// An account at a provider: where batches go.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct AccountView {
    /// Its id here.
    pub id: i32,
    /// The name that nodes have its provider under.
    pub provider: Option<String>,
    /// The kind of provider, such as `anthropic`.
    pub kind: String,
    /// Where its API is.
    pub base_url: String,
    /// What the provider says of whose it is.
    pub organization: String,
    /// As above.
    pub workspace: String,
    /// The node that sends for it.
    pub sender: Option<String>,
    /// Nothing is sent before this, when the provider asked to be left alone.
    pub not_before: Option<DateTime<Utc>>,
    /// Why nothing is sent at all, until somebody resumes: the provider refused the account.
    pub parked: Option<String>,
    /// Why nothing is sent at all, until somebody resumes: an operator paused it, or its provider.
    pub paused: Option<String>,
    /// Batches under way.
    pub batches: i64,
    /// What the batches cost that were settled today, by UTC, in nano-dollars.
    pub spent_today: i64,
    /// As above, this month.
    pub spent_this_month: i64,
}

/// All accounts.
pub(super) async fn accounts(pool: &PgPool) -> Result<Vec<AccountView>, StoreError> {
    let rows = sqlx::query!(
        r#"
select a.id, a.provider, a.kind, a.base_url, a.organization, a.workspace, n.name as "sender?", a.parked,
    case when a.not_before > longhaul.now() then a.not_before end as not_before,
    (
        select string_agg(p.why || ' (' || p.by || ')', '; ' order by p.kind) from longhaul.pauses p
        where p.kind = 1 and p.subject = a.provider or p.kind = 2 and p.subject = a.id::text
    ) as paused,
    (select count(*) from longhaul.batches b where b.account = a.id and b.status < 8) as "batches!",
    coalesce(s.today, 0)::bigint as "today!", coalesce(s.month, 0)::bigint as "month!"
from longhaul.accounts a
left join longhaul.nodes n on n.id = a.owner
cross join lateral (select (longhaul.now() at time zone 'UTC')::date as today) d
cross join lateral (
    select sum(s.nano_usd) as month, sum(s.nano_usd) filter (where s.day = d.today) as today from longhaul.spent s
    where s.account = a.id and s.day >= date_trunc('month', d.today)::date
) s
order by a.id
"#
    )
    .fetch_all(pool)
    .await?;
    let views = rows.into_iter().map(|r| AccountView {
        id: r.id,
        provider: r.provider,
        kind: r.kind,
        base_url: r.base_url,
        organization: r.organization,
        workspace: r.workspace,
        sender: r.sender,
        not_before: r.not_before,
        parked: r.parked,
        paused: r.paused,
        batches: r.batches,
        spent_today: r.today,
        spent_this_month: r.month,
    });
    Ok(views.collect())
}

/// Seals nothing for a provider (kind 1, by name) or an account (kind 2, by id) until it is resumed. Again replaces who and why.
pub(super) async fn pause_sends(
    pool: &PgPool,
    kind: i16,
    subject: &str,
    by: &str,
    why: &str,
) -> Result<(), StoreError> {
    sqlx::query!(
        "insert into longhaul.pauses (kind, subject, by, why) values ($1, $2, $3, $4)
         on conflict (kind, subject) do update set by = excluded.by, why = excluded.why",
        kind,
        subject,
        by,
        why
    )
    .execute(pool)
    .await?;
    Ok(())
}

/// Ends a pause; of an account also its being parked, and what it was asked to wait. `false`: there was nothing to end.
pub(super) async fn resume_sends(pool: &PgPool, kind: i16, subject: &str) -> Result<bool, StoreError> {
    let resumed = sqlx::query_scalar!(
        r#"
with gone as (delete from longhaul.pauses where kind = $1 and subject = $2 returning subject),
freed as (
    update longhaul.accounts a set parked = null, not_before = null, refused_in_row = 0
    where $1 = 2 and a.id::text = $2 and (a.parked is not null or a.not_before > longhaul.now())
    returning a.id
)
select exists (select from gone) or exists (select from freed) as "resumed!"
"#,
        kind,
        subject
    )
    .fetch_one(pool)
    .await?;
    Ok(resumed)
}

/// The pauses: kind, whom, who said so, why.
pub(super) async fn pauses(pool: &PgPool) -> Result<Vec<(i16, String, String, String)>, StoreError> {
    let rows = sqlx::query!("select kind, subject, by, why from longhaul.pauses order by kind, subject")
        .fetch_all(pool)
        .await?;
    Ok(rows.into_iter().map(|r| (r.kind, r.subject, r.by, r.why)).collect())
}
