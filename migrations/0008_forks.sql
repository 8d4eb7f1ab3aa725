-- Branches of a fork are runs of their own: same workflow, same input, a copy of the state.
alter table longhaul.runs
    -- Whose input it uses; null is its own.
    add column input_of bigint,
    -- The run at the top, and the run that waits for this one; null for a run that was enqueued.
    add column root bigint,
    add column parent bigint,
    add constraint runs_branches_have_all check ((parent is null) = (root is null) and (parent is null) = (input_of is null));

-- Who the branches of a fork are. Whether they are over is their own rows' to tell.
create table longhaul.fork_branches (
    run     bigint not null,
    child   bigint not null unique,
    ordinal int not null,
    branch  int not null,
    name    text not null,
    primary key (run, ordinal, branch)
);

-- Open forks: what the sweep looks through. An open wait is queued, so that no status is in an index.
create index waits_forks on longhaul.waits (opened_at) where kind = 5 and queued_at is not null;
