-- Forks that do not wait for the others when a branch fails: those are canceled, and can go on when the fork is set going again.
-- A canceled wait remembers when it would have been over.
alter table longhaul.waits add column kept_due_at timestamptz;
alter table longhaul.waits add constraint waits_kept_due_only_when_canceled check (kept_due_at is null or status = 8);

-- Whether it was canceled because another branch of its fork failed (or one above it), and not by request.
alter table longhaul.fork_branches add column stopped boolean not null default false;

-- Runs that are to be canceled: the branches of a canceled run, and of a fork that does not wait. Written together with the reason,
-- and gone when carried out, whoever dies in between.
create table longhaul.cancel_orders (
    run  bigint primary key,
    -- Whether it may go on later.
    stop boolean not null
);
