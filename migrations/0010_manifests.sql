-- What a version of a workflow consists of, as the last node that started with it said: beside the names of the steps, the
-- types of what is stored. Null where only an older build has registered it.
alter table longhaul.workflow_versions
    add column manifest json,
    add column fingerprint text;
