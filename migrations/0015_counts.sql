-- How many runs there are of each status, without counting them: every statement that changes runs adds what it changed, and the
-- sum is the count. Rows are added up from time to time. Nobody waits for anybody: a row is only ever inserted, or taken away whole.
create table longhaul.run_counts (
    workflow int not null,
    branch   bool not null,
    status   smallint not null,
    n        bigint not null
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 20000);

insert into longhaul.run_counts (workflow, branch, status, n)
select workflow, parent is not null, status, count(*) from longhaul.runs group by 1, 2, 3;

create function longhaul.count_made() returns trigger language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    insert into longhaul.run_counts (workflow, branch, status, n)
    select workflow, parent is not null, status, count(*) from made group by 1, 2, 3;
    return null;
end $$;

create function longhaul.count_gone() returns trigger language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    insert into longhaul.run_counts (workflow, branch, status, n)
    select workflow, parent is not null, status, -count(*) from gone group by 1, 2, 3;
    return null;
end $$;

create function longhaul.count_changed() returns trigger language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    insert into longhaul.run_counts (workflow, branch, status, n)
    select workflow, branch, status, sum(n) from (
        select workflow, parent is not null as branch, status, count(*) as n from now_so group by 1, 2, 3
        union all
        select workflow, parent is not null, status, -count(*) from was_so group by 1, 2, 3
    ) changed
    group by 1, 2, 3 having sum(n) <> 0;
    return null;
end $$;

create trigger runs_made after insert on longhaul.runs referencing new table as made
    for each statement execute function longhaul.count_made();
create trigger runs_gone after delete on longhaul.runs referencing old table as gone
    for each statement execute function longhaul.count_gone();
create trigger runs_changed after update on longhaul.runs referencing old table as was_so new table as now_so
    for each statement execute function longhaul.count_changed();
