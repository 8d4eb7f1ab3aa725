-- What clients say of a run and what lists find it by. Neither is part of its identity.
alter table longhaul.inputs add column metadata json;

-- Only of runs that were given tags; a branch has those of the run at its top.
create table longhaul.run_tags (
    tag text not null check (octet_length(tag) between 1 and 64),
    run bigint not null,
    primary key (tag, run)
);
create index run_tags_run on longhaul.run_tags (run);

-- What lists look for and what may be rare among millions: waiting, parked, failed, canceled. It is null while a run is owned, so
-- no step boundary touches the index, and whoever changes a status changes it too.
alter table longhaul.runs add column listed smallint
    generated always as (case when status in (3, 4, 6, 7) then status end) stored;
create index runs_listed on longhaul.runs (workflow, listed, id) where listed is not null;

-- Which transaction ended the run. Readers who follow the ends go by it: those below the oldest transaction that is still open
-- can have no new neighbours.
alter table longhaul.outputs add column finished_in xid8 not null default pg_current_xact_id();
create index outputs_finished on longhaul.outputs (finished_in, run);

-- The step that a run of this version begins with; null until a program that knows it has registered.
alter table longhaul.workflow_versions add column entry text;

-- Enqueued by plain SQL: whoever needs the digest makes it from the body.
alter table longhaul.inputs alter column digest drop not null;

-- How deep a JSON text is nested, as far as `most` and one more.
create function longhaul.json_depth(body text, most int) returns int
    language plpgsql immutable parallel safe
    set search_path = pg_catalog, pg_temp
as $$
declare
    brackets text := regexp_replace(regexp_replace(body, '"(?:[^"\\]|\\.)*"', '', 'g'), '[^][{}]+', '', 'g');
    depth int := 0;
begin
    while brackets <> '' and depth <= most loop
        brackets := regexp_replace(brackets, '\[\]|\{\}', '', 'g');
        depth := depth + 1;
    end loop;
    return depth;
end $$;

-- Enqueues a run from any driver, in whatever transaction the caller is in. Answers `created`, or what the same run is doing when
-- it was enqueued before. Nodes find it by looking; whoever does not want to wait for that sends a notification after COMMIT.
create function longhaul.enqueue(
    workflow text, version int, run_id text, input json, tags text[] default '{}', metadata json default null
) returns text
    language plpgsql volatile
    set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    kind record;
    there record;
    made bigint;
    tag text;
    body text := coalesce(enqueue.input, 'null'::json)::text;
    same boolean;
begin
    if enqueue.run_id is null or enqueue.run_id ~ '^[\s\u0085\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]*$' then
        raise exception 'invalid-run-id: a run id must not be blank' using errcode = 'LH001', hint = 'choose a stable id of your own';
    elsif octet_length(enqueue.run_id) > 200 then
        raise exception 'invalid-run-id: a run id has at most 200 bytes, this one has %', octet_length(enqueue.run_id)
            using errcode = 'LH001', hint = 'choose a shorter id, such as a digest of this one';
    elsif enqueue.run_id ~ '[\u0001-\u001f\u007f-\u009f]' then
        raise exception 'invalid-run-id: a run id must not contain control characters' using errcode = 'LH001', hint = 'leave them out';
    elsif left(enqueue.run_id, 1) = '~' then
        raise exception 'invalid-run-id: a run id must not start with `~`' using errcode = 'LH001', hint = 'that form is kept for branches';
    end if;

    if octet_length(body) > 8388608 then
        raise exception 'invalid-value: the input has % bytes of JSON, at most 8388608 are allowed', octet_length(body)
            using errcode = 'LH004', hint = 'keep large documents elsewhere and enqueue their address';
    elsif longhaul.json_depth(body, 100) > 100 then
        raise exception 'invalid-value: the input is nested deeper than 100 levels' using errcode = 'LH004', hint = 'make it flatter';
    end if;
    if enqueue.metadata is not null and (json_typeof(enqueue.metadata) <> 'object' or octet_length(enqueue.metadata::text) > 4096
            or longhaul.json_depth(enqueue.metadata::text, 100) > 100) then
        raise exception 'invalid-options: metadata is a JSON object of at most 4096 bytes' using errcode = 'LH005', hint = 'what the run works on belongs into its input';
    end if;
    if cardinality(array(select distinct unnest(enqueue.tags))) > 16 then
        raise exception 'invalid-options: a run has at most 16 tags' using errcode = 'LH005', hint = 'leave some out';
    end if;
    foreach tag in array coalesce(enqueue.tags, '{}') loop
        if coalesce(octet_length(tag), 0) not between 1 and 64 or tag ~ '[\u0001-\u001f\u007f-\u009f]' then
            raise exception 'invalid-options: a tag has 1 to 64 bytes and no control characters' using errcode = 'LH005', hint = 'choose a shorter word';
        end if;
    end loop;

    select v.id, v.entry into kind from longhaul.workflow_versions v
    where v.name = enqueue.workflow and v.version = enqueue.version and v.entry is not null;
    if not found then
        raise exception 'unknown-workflow: no workflow `%` version % is registered', enqueue.workflow, enqueue.version
            using errcode = 'LH002', hint = 'start a node that has it once, or look into longhaul.workflow_versions for the versions there are';
    end if;

    insert into longhaul.runs (run_id, workflow, status, ready_at, cursor, input_bytes, step)
    values (enqueue.run_id, kind.id, 1, longhaul.now(), 1, octet_length(body), kind.entry)
    on conflict (run_id) do nothing returning id into made;
    if made is not null then
        insert into longhaul.inputs (run, body, metadata) values (made, body::json, enqueue.metadata);
        insert into longhaul.run_tags (tag, run) select distinct unnest(enqueue.tags), made;
        insert into longhaul.events (run, ordinal, nonce, type, payload)
        values (made, 0, longhaul.nonce(), 1, json_build_object('bytes', octet_length(body), 'by', 'sql'));
        return 'created';
    end if;

    -- A statement of its own: it sees a run that another transaction made meanwhile.
    select r.status, v.name, i.body::text as body, i.text_digest into there from longhaul.runs r
    join longhaul.workflow_versions v on v.id = r.workflow join longhaul.inputs i on i.run = r.id
    where r.run_id = enqueue.run_id;
    if not found then
        raise exception 'run `%` was made by a transaction that this one does not see', enqueue.run_id
            using errcode = '40001', hint = 'begin a new transaction and repeat it';
    end if;
    same := there.name = enqueue.workflow
        and coalesce(there.body = body, there.text_digest = sha256(convert_to(body, 'UTF8')), false);
    if not same and there.name = enqueue.workflow then
        begin
            same := coalesce(there.body::jsonb::text = body::jsonb::text, false);
        exception when others then
            -- Text that jsonb cannot hold is compared as it is.
            same := false;
        end;
    end if;
    if not same then
        raise exception 'duplicate-run: run `%` exists with another input', enqueue.run_id
            using errcode = 'LH003', hint = 'choose another id, or enqueue the same workflow and input';
    end if;
    return (array['runnable', 'owned', 'waiting', 'parked', 'completed', 'failed', 'canceled'])[there.status];
end $$;
