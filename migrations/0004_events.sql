-- The ledger: append-only, written in the transaction of the change it tells of. One index, no foreign key: integrity is
-- the audit's. Payloads hold names, counts and digests, never bodies.
create table longhaul.events (
    run           bigint not null,
    nonce         bigint not null,
    at            timestamptz not null default longhaul.now(),
    -- Null is "the run's previous event".
    cause_run     bigint,
    cause_nonce   bigint,
    ordinal       int not null check (ordinal >= 0),
    cause_ordinal int,
    type          smallint not null,
    version       smallint not null default 1,
    payload       json not null
) with (autovacuum_vacuum_insert_scale_factor = 0.5);

create unique index events_run_ordinal on longhaul.events (run, ordinal);
