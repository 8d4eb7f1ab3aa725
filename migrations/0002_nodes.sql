-- A node is a process from its start to its death. Its id is random and never used again; death is final.
create table longhaul.nodes (
    id          uuid primary key,
    name        text not null,
    version     text not null,
    lease_ms    int not null check (lease_ms > 0),
    started_at  timestamptz not null default longhaul.now(),
    beat        bigint not null default 0,
    beat_at     timestamptz not null default longhaul.now(),
    -- Rises only while the node's actors answer; others judge by it, not by the beat.
    progress    bigint not null default 0,
    draining    boolean not null default false,
    dead_at     timestamptz
) with (fillfactor = 50);

-- What nodes have registered: the steps of a workflow's version. The key is what a run names.
create table longhaul.workflow_versions (
    id            int generated always as identity primary key,
    name          text not null,
    version       int not null check (version >= 0),
    steps         text[] not null,
    registered_at timestamptz not null default longhaul.now(),
    unique (name, version)
);
