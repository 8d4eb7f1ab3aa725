-- Records are not kept for ever. A run that was enqueued goes with all its branches; what stays of it, for longer, is its own row
-- without bodies: so that the same enqueue again is still the same run.
alter table longhaul.runs add column removed_at timestamptz;
alter table longhaul.runs add constraint runs_removed_only_when_over check (removed_at is null or status in (5, 6, 7));
alter table longhaul.inputs alter column body drop not null;
-- Of the text that the body was, set when it is removed.
alter table longhaul.inputs add column text_digest bytea;

-- The ends of runs that were enqueued, the oldest first: what the sweep looks through. Written once, when a run ends.
create index runs_over on longhaul.runs (finished_at, id) where finished_at is not null and parent is null and removed_at is null;
create index runs_removed on longhaul.runs (removed_at, id) where removed_at is not null;

-- What is kept all the same, until somebody lets go of it.
create table longhaul.holds (
    run bigint primary key,
    at  timestamptz not null default longhaul.now(),
    by  text not null,
    why text not null
);

-- What was in a batch and is not any more; the sums stay.
alter table longhaul.batches
    add column removed_items int not null default 0,
    add column removed_nano_usd bigint not null default 0,
    add column removed_unpriced int not null default 0,
    add column removed_late int not null default 0;
