-- What a run is suspended on: one row each, named by the run and the ordinal of the event that opened it.
--   kind    1 model  2 tools  3 human  4 external  5 fork  6 timer
--   status  1 open  2 reserved  3 sent  4 answered  5 applied  6 failed  7 expired  8 canceled
create table longhaul.waits (
    run       bigint not null,
    -- The item that carries its latest attempt.
    batch     bigint,
    opened_at timestamptz not null default longhaul.now(),
    -- Set while, and only while, it is open: since when it may be taken up.
    queued_at timestamptz,
    ordinal   int not null,
    item      int,
    bytes     int not null,
    attempt   smallint not null default 0,
    -- Failed attempts that count against the retry budget.
    errors    smallint not null default 0,
    kind      smallint not null,
    status    smallint not null check (status between 1 and 8),
    provider  text,
    primary key (run, ordinal),
    check ((status = 1) = (queued_at is not null)),
    check (kind <> 1 or provider is not null)
) with (fillfactor = 70);

create index waits_queue on longhaul.waits (provider, queued_at, run, ordinal) where queued_at is not null;

-- The body of what is asked, exactly as it goes out.
create table longhaul.requests (
    run     bigint not null,
    ordinal int not null,
    body    json not null,
    primary key (run, ordinal)
);
