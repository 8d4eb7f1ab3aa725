-- Which batches a request may travel in, where a provider does not take every mixture (one model per batch): requests of one
-- group travel together. Empty is no group: the provider takes any, or nobody has looked yet.
alter table longhaul.waits add column batch_group text not null default '';
alter table longhaul.batches add column batch_group text not null default '';

drop index longhaul.waits_queue;
create index waits_queue on longhaul.waits (provider, batch_group, queued_at, run, ordinal)
    where queued_at is not null and held_by is null;
