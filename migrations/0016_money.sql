-- What answers cost, summed by day (UTC, when their batch was settled), account, workflow and model. Written with the settle of each
-- batch; it stays when the records of runs go.
create table longhaul.spent (
    day                date not null,
    account            int not null,
    workflow           text not null,
    -- Empty: the line did not tell.
    model              text not null,
    items              bigint not null,
    -- Of the items: without a known price; and paid for, but of no use to anybody.
    unpriced           bigint not null,
    unused             bigint not null,
    nano_usd           bigint not null,
    unused_nano_usd    bigint not null,
    input_tokens       bigint not null,
    output_tokens      bigint not null,
    cache_write_tokens bigint not null,
    cache_read_tokens  bigint not null,
    primary key (workflow, account, day, model)
);
create index spent_account on longhaul.spent (account, day);

alter table longhaul.batch_items add column model text;

insert into longhaul.spent
select (b.settled_at at time zone 'UTC')::date, b.account, v.name, '', count(*), count(*) filter (where i.nano_usd is null),
    count(*) filter (where i.status <> 3), coalesce(sum(i.nano_usd), 0),
    coalesce(sum(i.nano_usd) filter (where i.status <> 3), 0), coalesce(sum(i.input_tokens), 0),
    coalesce(sum(i.output_tokens), 0), coalesce(sum(i.cache_write_tokens), 0), coalesce(sum(i.cache_read_tokens), 0)
from longhaul.batches b
join longhaul.batch_items i on i.batch = b.id and i.status in (3, 8, 9, 10)
join longhaul.runs r on r.id = i.run
join longhaul.workflow_versions v on v.id = r.workflow
where b.status = 8 group by 1, 2, 3;

-- How much may be spent.
--   kind    1 an account, by its id  2 a workflow, by its name  3 a run with all its branches, by its key
--   period  0 for ever  1 a day  2 a month, by UTC
create table longhaul.budgets (
    id         int generated always as identity primary key,
    kind       smallint not null check (kind between 1 and 3),
    period     smallint not null check (period between 0 and 2),
    subject    text not null,
    -- Null: not any more. The row stays as long as requests are held by it.
    limit_nano bigint check (limit_nano >= 0),
    -- Whether requests go out whose price is not known.
    unpriced   boolean not null default true,
    -- Rises with everything that is decided by it.
    version    bigint not null default 0,
    set_at     timestamptz not null default longhaul.now(),
    by         text not null,
    unique (kind, subject, period)
);

-- What batches may come to cost, at most, by budget. It counts until the batch is settled, and then what it did cost.
create table longhaul.reserved (
    batch    bigint not null,
    budget   int not null,
    nano_usd bigint not null,
    primary key (budget, batch)
);
create index reserved_batch on longhaul.reserved (batch);

-- What the answers of a run and its branches have cost in batches that are settled.
create function longhaul.spent_by_tree(top bigint, since date) returns bigint
    language sql stable as $$
    with recursive tree (run) as (
        select top
        union all
        select f.child from tree t join longhaul.fork_branches f on f.run = t.run
    )
    select coalesce(sum(i.nano_usd), 0)::bigint from tree t
    join longhaul.batch_items i on i.run = t.run and i.status in (3, 10)
    join longhaul.batches b on b.id = i.batch and b.status = 8 and b.settled_at >= since::timestamp at time zone 'UTC'
$$;

create view longhaul.budget_use as
select b.id, b.kind, b.period, b.subject, b.limit_nano, b.unpriced, b.version, b.set_at, b.by, p.ends_at,
    coalesce(case b.kind
        when 1 then (select sum(s.nano_usd) from longhaul.spent s where s.account = b.subject::int and s.day >= p.since)
        when 2 then (select sum(s.nano_usd) from longhaul.spent s where s.workflow = b.subject and s.day >= p.since)
        else longhaul.spent_by_tree(b.subject::bigint, p.since)
    end, 0)::bigint as spent,
    (
        select coalesce(sum(r.nano_usd), 0)::bigint from longhaul.reserved r
        join longhaul.batches t on t.id = r.batch and t.status < 8
        where r.budget = b.id
    ) as in_flight
from longhaul.budgets b
cross join lateral (select longhaul.now() at time zone 'UTC' as now) n
cross join lateral (
    select case b.period when 0 then date '-infinity' when 1 then n.now::date else date_trunc('month', n.now)::date end as since,
        case b.period when 1 then n.now::date + 1 when 2 then date_trunc('month', n.now) + interval '1 month' end
            at time zone 'UTC' as ends_at
) p;

-- Requests that a budget holds, and what each may come to cost (null: unknown). They are not in the queue.
alter table longhaul.waits
    add column held_by int,
    add column estimate bigint,
    -- How often the provider has not worked on it: expired and canceled.
    add column returned smallint not null default 0;
drop index longhaul.waits_queue;
create index waits_queue on longhaul.waits (provider, queued_at, run, ordinal) where queued_at is not null and held_by is null;
drop index longhaul.waits_company;
create index waits_company on longhaul.waits (provider, company)
    where company is not null and queued_at is not null and held_by is null;
create index waits_held on longhaul.waits (held_by, estimate, run, ordinal) where held_by is not null and queued_at is not null;

-- Under which name a node has the account.
alter table longhaul.accounts add column provider text;

-- Nothing is sealed for these until somebody resumes.
--   kind  1 a provider, by the name that nodes have it under  2 an account, by its id
create table longhaul.pauses (
    kind    smallint not null check (kind in (1, 2)),
    subject text not null,
    at      timestamptz not null default longhaul.now(),
    by      text not null,
    why     text not null,
    primary key (kind, subject)
);
