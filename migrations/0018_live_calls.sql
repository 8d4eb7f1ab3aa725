-- Requests to models that are not left to a batch for ever: when the answer is wanted, and whether the run is parked when nobody
-- knows what became of a live call (null: it is made again). A request goes live when a batch would be later than its deadline.
alter table longhaul.waits
    add column deadline_at timestamptz,
    add column park_lost boolean;
create index waits_live on longhaul.waits (provider, deadline_at, run, ordinal)
    where deadline_at is not null and queued_at is not null and held_by is null;

-- One row per live call, written before its first byte: the codes are those of items, as far as they apply.
--   status  2 sent  3 succeeded  4 errored  7 missing (nobody knows)  9 unreadable  10 superseded
create table longhaul.live_calls (
    run           bigint not null,
    wait          int not null,
    attempt       smallint not null,
    account       int not null,
    -- Who makes it.
    node          uuid not null,
    status        smallint not null check (status in (2, 3, 4, 7, 9, 10)),
    sent_at       timestamptz not null default longhaul.now(),
    settled_at    timestamptz,
    input_tokens  bigint,
    output_tokens bigint,
    cache_write_tokens bigint,
    cache_read_tokens bigint,
    model         text,
    -- Integer nano-dollars; null is unknown, never zero.
    nano_usd      bigint,
    -- What it may come to cost at most: budgets count with it while it is under way.
    estimate      bigint,
    -- Why there is no answer.
    note          text,
    -- What came, where no step could take it. Answers are in longhaul.answers.
    line          bytea,
    primary key (run, wait, attempt),
    constraint live_calls_settled_iff_over check ((status = 2) = (settled_at is null))
) with (fillfactor = 80);
create index live_calls_under_way on longhaul.live_calls (node) where status = 2;

-- Live calls have limits of their own at the provider: none is made before this; and how often in a row it would take none.
alter table longhaul.accounts
    add column live_not_before timestamptz,
    add column live_refused int not null default 0;

-- What calls came to whose records are removed.
create table longhaul.live_removed (
    account   int primary key,
    calls     bigint not null,
    answered  bigint not null,
    superseded bigint not null,
    refused   bigint not null,
    lost      bigint not null,
    nano_usd  bigint not null,
    unpriced  bigint not null
);

-- Budgets count with live calls too: with what they may come to cost while they are under way, and then with what they did cost.
create or replace function longhaul.spent_by_tree(top bigint, since date) returns bigint
    language sql stable as $$
    with recursive tree (run) as (
        select top
        union all
        select f.child from tree t join longhaul.fork_branches f on f.run = t.run
    ),
    paid as (
        select i.nano_usd from tree t
        join longhaul.batch_items i on i.run = t.run and i.status in (3, 10)
        join longhaul.batches b on b.id = i.batch and b.status = 8 and b.settled_at >= since::timestamp at time zone 'UTC'
        union all
        select c.nano_usd from tree t
        join longhaul.live_calls c on c.run = t.run and c.status in (3, 10)
            and c.settled_at >= since::timestamp at time zone 'UTC'
    )
    select coalesce(sum(nano_usd), 0)::bigint from paid
$$;

create or replace view longhaul.budget_use as
select b.id, b.kind, b.period, b.subject, b.limit_nano, b.unpriced, b.version, b.set_at, b.by, p.ends_at,
    coalesce(case b.kind
        when 1 then (select sum(s.nano_usd) from longhaul.spent s where s.account = b.subject::int and s.day >= p.since)
        when 2 then (select sum(s.nano_usd) from longhaul.spent s where s.workflow = b.subject and s.day >= p.since)
        else longhaul.spent_by_tree(b.subject::bigint, p.since)
    end, 0)::bigint as spent,
    ((
        select coalesce(sum(r.nano_usd), 0) from longhaul.reserved r
        join longhaul.batches t on t.id = r.batch and t.status < 8
        where r.budget = b.id
    ) + (
        select coalesce(sum(c.estimate), 0) from longhaul.live_calls c
        join longhaul.runs r on r.id = c.run join longhaul.workflow_versions v on v.id = r.workflow
        where c.status = 2 and case b.kind
            when 1 then c.account = b.subject::int
            when 2 then v.name = b.subject
            else coalesce(r.root, r.id) = b.subject::bigint
        end
    ))::bigint as in_flight
from longhaul.budgets b
cross join lateral (select longhaul.now() at time zone 'UTC' as now) n
cross join lateral (
    select case b.period when 0 then date '-infinity' when 1 then n.now::date else date_trunc('month', n.now)::date end as since,
        case b.period when 1 then n.now::date + 1 when 2 then date_trunc('month', n.now) + interval '1 month' end
            at time zone 'UTC' as ends_at
) p;
