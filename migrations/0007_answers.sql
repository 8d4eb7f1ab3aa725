-- Waits that are not a model's: people, other services, time. When they are over without an answer from outside, and what
-- the answer is then.
alter table longhaul.waits add column due_at timestamptz;
alter table longhaul.requests add column otherwise json;

-- Set only while the wait is open.
alter table longhaul.waits add constraint waits_due_only_while_open check (due_at is null or status = 1);
create index waits_due on longhaul.waits (due_at) where due_at is not null;

-- What people, other services and time have answered. Answers of models are the provider's lines.
create table longhaul.answers (
    run     bigint not null,
    ordinal int not null,
    at      timestamptz not null default longhaul.now(),
    -- Who says so: a name that the answerer gave. Null is time.
    by      text,
    body    json not null,
    primary key (run, ordinal)
);

-- Which versions of workflows a node has: whether anybody living could run a run.
alter table longhaul.nodes add column workflows int[] not null default '{}';
