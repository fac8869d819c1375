ALTER TABLE generations ADD COLUMN native_stop_reason TEXT;
ALTER TABLE generations ADD COLUMN is_estimated BOOLEAN NOT NULL DEFAULT FALSE;
ALTER TABLE generations ADD COLUMN is_clamped BOOLEAN NOT NULL DEFAULT FALSE;
ALTER TABLE generations ADD COLUMN settlement TEXT NOT NULL DEFAULT 'settled';
ALTER TABLE generations ADD COLUMN reserved_nanos BIGINT NOT NULL DEFAULT 0;
ALTER TABLE generations ADD COLUMN upstream_cost_nanos BIGINT;
ALTER TABLE generations ADD COLUMN reported_cost_nanos BIGINT;
ALTER TABLE generations ADD COLUMN cache_discount_nanos BIGINT;
ALTER TABLE generations ADD COLUMN service_tier TEXT;
ALTER TABLE generations ADD COLUMN user_agent TEXT;
ALTER TABLE generations ADD COLUMN referer TEXT;
ALTER TABLE generations ADD COLUMN title TEXT;
-- Counts that few requests have, as JSON.
ALTER TABLE generations ADD COLUMN other_usage TEXT;

-- A record is also asked for by the id of the message it answered with. Calls without an answer do not pay for it.
CREATE INDEX generations_by_message ON generations (upstream_id) WHERE upstream_id IS NOT NULL;

-- What each workspace and organisation spent on each UTC day, written with the days of keys: a limit of either is then
-- compared with a few rows instead of those of all its keys.
CREATE TABLE account_days (
    account TEXT NOT NULL,
    day BIGINT NOT NULL,
    organisation_id TEXT NOT NULL,
    credit_nanos BIGINT NOT NULL,
    byok_nanos BIGINT NOT NULL,
    requests BIGINT NOT NULL,
    PRIMARY KEY (account, day)
);

-- Dollars and what is below them are summed apart, and a sum that does not fit stays the largest there is.
INSERT INTO account_days (account, day, organisation_id, credit_nanos, byok_nanos, requests)
SELECT account, day, organisation_id,
    CAST(CASE WHEN SUM(credit_nanos / 1000000000) + SUM(credit_nanos % 1000000000) / 1000000000 >= 9223372036
        THEN 9223372036854775807
        ELSE SUM(credit_nanos / 1000000000) * 1000000000 + SUM(credit_nanos % 1000000000) END AS BIGINT),
    CAST(CASE WHEN SUM(byok_nanos / 1000000000) + SUM(byok_nanos % 1000000000) / 1000000000 >= 9223372036
        THEN 9223372036854775807
        ELSE SUM(byok_nanos / 1000000000) * 1000000000 + SUM(byok_nanos % 1000000000) END AS BIGINT),
    CAST(SUM(requests) AS BIGINT)
FROM (
    SELECT 'workspace:' || workspace_id AS account, day, organisation_id, credit_nanos, byok_nanos, requests
    FROM key_days
    UNION ALL
    SELECT 'organisation:' || organisation_id, day, organisation_id, credit_nanos, byok_nanos, requests
    FROM key_days
) AS each_account
GROUP BY account, day, organisation_id;

-- An account in one of its windows, from which nodes take leases. Whoever changes a lease of it holds its row. There is
-- no column for what is posted: that is summed from the days, so it cannot drift from them.
CREATE TABLE ledger_slots (
    slot TEXT NOT NULL PRIMARY KEY,
    -- When a node was last refused although others held something, and which.
    wanted_at BIGINT,
    wanted_by TEXT
);

CREATE TABLE ledger_nodes (
    id TEXT NOT NULL PRIMARY KEY,
    epoch BIGINT NOT NULL,
    beat_at BIGINT NOT NULL,
    started_at BIGINT NOT NULL
);

-- What a node may still spend in a slot without asking. A lease never outlives its node's row.
CREATE TABLE ledger_leases (
    slot TEXT NOT NULL,
    node_id TEXT NOT NULL REFERENCES ledger_nodes (id) ON DELETE CASCADE,
    amount BIGINT NOT NULL,
    PRIMARY KEY (slot, node_id)
);

CREATE INDEX ledger_leases_by_node ON ledger_leases (node_id);

-- Credits that organisations were given. None is ever changed or taken out.
CREATE TABLE credit_grants (
    id TEXT NOT NULL PRIMARY KEY,
    organisation_id TEXT NOT NULL REFERENCES organisations (id),
    amount_nanos BIGINT NOT NULL,
    note TEXT,
    -- The key it was made with; none at the shell.
    created_by TEXT,
    created_at BIGINT NOT NULL
);

CREATE INDEX credit_grants_by_time ON credit_grants (organisation_id, created_at);

-- What records that were removed for their age had added to the days: days stay provable without them.
CREATE TABLE spend_archive (
    key_hash TEXT NOT NULL,
    day BIGINT NOT NULL,
    organisation_id TEXT NOT NULL,
    workspace_id TEXT NOT NULL,
    credit_nanos BIGINT NOT NULL,
    byok_nanos BIGINT NOT NULL,
    requests BIGINT NOT NULL,
    PRIMARY KEY (key_hash, day, organisation_id, workspace_id)
);

-- Taken by every change of a budget or grant: nodes that see it unchanged need not read them again.
INSERT INTO sequences (name, value) VALUES ('limits', 0);

-- Held by whoever removes old records, so that two of them take turns.
INSERT INTO sequences (name, value) VALUES ('retention', 0);
