-- What operators have said of a workflow, whatever its version: a row only where they have said something.
create table longhaul.workflow_controls (
    name          text primary key,
    -- Set while, and only while, nothing of it is claimed.
    paused_at     timestamptz,
    paused_by     text,
    paused_reason text,
    -- How many of its runs may be owned at a time, over all nodes.
    max_running   int check (max_running > 0),
    constraint workflow_controls_paused_by_somebody
        check ((paused_at is null) = (paused_by is null) and (paused_at is null) = (paused_reason is null))
);

-- Who said what, and when.
create table longhaul.control_log (
    id     bigint generated always as identity primary key,
    at     timestamptz not null default longhaul.now(),
    -- A workflow or a node.
    target text not null,
    action text not null,
    by     text not null,
    detail text not null
);
create index control_log_target on longhaul.control_log (target, id);

-- How many more runs of a workflow with a ceiling may be claimed. The lock is held until the claim's COMMIT, and this function's
-- second statement begins after it was got: it sees what every claim before this one has taken. Called for no other workflow.
create function longhaul.room(control text) returns bigint
    language plpgsql volatile
    set search_path = pg_catalog, pg_temp
as $$
declare most int;
begin
    select c.max_running into most from longhaul.workflow_controls c where c.name = control for update;
    if most is null then return 9223372036854775807; end if;
    return greatest(0, most - (
        select count(*) from longhaul.runs r
        where r.owner is not null and r.workflow in (select v.id from longhaul.workflow_versions v where v.name = control)
    ));
end $$;
