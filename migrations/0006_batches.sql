-- Where batches go: an account at a provider, known by what the provider says of itself, not by the key. One node holds the
-- submit lease; the fence rises when it changes hands.
create table longhaul.accounts (
    id           int generated always as identity primary key,
    kind         text not null,
    base_url     text not null,
    organization text not null,
    workspace    text not null,
    owner        uuid,
    fence        bigint not null default 0,
    -- Nothing is sent before this.
    not_before   timestamptz,
    -- Why nothing is sent at all, until an operator acts.
    parked       text,
    unique (kind, base_url, organization, workspace)
);

--   status  1 reserved  2 sealed  3 sending  4 ambiguous  5 submitted  6 adopted_unverified  7 ended  8 settled  9 abandoned
create table longhaul.batches (
    id                bigint generated always as identity primary key,
    account           int not null,
    intent            uuid not null unique,
    status            smallint not null check (status between 1 and 9),
    -- Who polls and ingests it. Whoever sends it is named by the account's fence.
    owner             uuid,
    fence             bigint not null default 0,
    lease             bigint not null,
    n                 int not null default 0,
    bytes             bigint not null default 0,
    digest            bytea,
    api_version       text,
    watermark         text,
    watermark_at      timestamptz,
    send_limit_ms     bigint,
    reserved_at       timestamptz not null default longhaul.now(),
    sealed_at         timestamptz,
    sending_at        timestamptz,
    ambiguous_at      timestamptz,
    submitted_at      timestamptz,
    adopted_at        timestamptz,
    verified_at       timestamptz,
    ended_at          timestamptz,
    settled_at        timestamptz,
    abandoned_at      timestamptz,
    -- Set while, and only while, somebody has to look at it: when next.
    check_at          timestamptz,
    downloads         int not null default 0,
    provider_batch_id text,
    results_url       text,
    note              text,
    unique (account, provider_batch_id),
    check (status not in (5, 6, 7, 8) or provider_batch_id is not null),
    check (status < 2 or status = 9 or digest is not null)
);

create index batches_due on longhaul.batches (account, check_at) where check_at is not null;
create index batches_owner on longhaul.batches (owner) where owner is not null;
create index batches_unsettled on longhaul.batches (account, status) where status < 8;

-- One row per request sent. The custom id is `<intent in base 62>-<item in base 36>`.
--   status  1 pending  2 sent  3 succeeded  4 errored  5 expired  6 canceled  7 missing  8 missing_paid  9 unreadable
--           10 superseded
create table longhaul.batch_items (
    batch         bigint not null,
    run           bigint not null,
    item          int not null,
    wait          int not null,
    attempt       smallint not null,
    status        smallint not null check (status between 1 and 10),
    settled_at    timestamptz,
    input_tokens  bigint,
    output_tokens bigint,
    cache_write_tokens bigint,
    cache_read_tokens bigint,
    -- Integer nano-dollars; null is unknown, never zero.
    nano_usd      bigint,
    -- The provider's line as it came; stored once.
    line          bytea,
    primary key (batch, item),
    constraint batch_items_settled_iff_over check ((status in (1, 2)) = (settled_at is null)),
    constraint batch_items_paid_has_line check (status not in (3, 10) or line is not null)
) with (fillfactor = 80);

create index batch_items_wait on longhaul.batch_items (run, wait);

-- Batches seen in a listing that turned out not to be ours.
create table longhaul.foreign_batches (
    account           int not null,
    provider_batch_id text not null,
    seen_at           timestamptz not null default longhaul.now(),
    primary key (account, provider_batch_id)
);
