-- One clock for everything: the database's. Test databases replace this function by one that can be shifted.
create function longhaul.now() returns timestamptz
    language sql stable parallel safe
    return pg_catalog.statement_timestamp();

-- 63 random bits: what tells an event from any other that was meant for the same place.
create function longhaul.nonce() returns bigint
    language sql volatile parallel safe
    return (random() * 9007199254740992)::bigint * 1024 + (random() * 1023)::bigint;
