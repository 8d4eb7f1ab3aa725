-- A request that a provider may have refused a whole batch for travels with at most so many others, fewer each time, until it is
-- alone; null is no suspicion. And how often a request may fail, and how long it waits between: null is the node's setting.
alter table longhaul.waits
    add column company int,
    add column budget smallint,
    add column backoff_ms int;
create index waits_company on longhaul.waits (provider, company) where company is not null and queued_at is not null;

-- Requests refused one by one, with nothing accepted since: then it is not about them.
alter table longhaul.accounts add column refused_in_row int not null default 0;

-- Items that a complete download of the results did not have: which, how often in a row, since when. And when the provider was asked to
-- cancel a batch that nobody waits for.
alter table longhaul.batches
    add column holes bytea,
    add column holes_seen int not null default 0,
    add column holes_since timestamptz,
    add column cancel_at timestamptz;

-- Sends that were given up on, as long as they may still show up.
create index batches_lost on longhaul.batches (account, abandoned_at) where abandoned_at is not null and ambiguous_at is not null;
