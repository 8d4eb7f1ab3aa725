-- Requests to models that are not left to a batch for ever: when the answer is wanted, and whether the run is parked when nobody
-- knows what became of a live call (null: it is made again). A request goes live when a batch would be later than its deadline.
alter table longhaul.waits
    add column deadline_at timestamptz,
    add column park_lost boolean;
create index waits_live on longhaul.waits (provider, deadline_at, run, ordinal)
    where deadline_at is not null and queued_at is not null;

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
    -- Integer nano-dollars; null is unknown, never zero.
    nano_usd      bigint,
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
