-- People of an organisation. A person who was removed keeps the row, so that what they made still names its maker.
CREATE TABLE users (
    id TEXT NOT NULL PRIMARY KEY,
    organisation_id TEXT NOT NULL REFERENCES organisations (id),
    email TEXT NOT NULL,
    first_name TEXT,
    last_name TEXT,
    role TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    removed_at BIGINT,
    UNIQUE (organisation_id, id)
);

CREATE UNIQUE INDEX users_by_email ON users (organisation_id, email) WHERE removed_at IS NULL;

ALTER TABLE workspaces ADD COLUMN created_by TEXT;
ALTER TABLE workspaces ADD COLUMN default_image_model TEXT;
ALTER TABLE workspaces ADD COLUMN default_provider_sort TEXT;
ALTER TABLE workspaces ADD COLUMN include_byok_in_budgets BOOLEAN NOT NULL DEFAULT FALSE;
ALTER TABLE workspaces ADD COLUMN is_broadcast_enabled BOOLEAN NOT NULL DEFAULT TRUE;
ALTER TABLE workspaces ADD COLUMN is_io_logging_enabled BOOLEAN NOT NULL DEFAULT FALSE;
ALTER TABLE workspaces ADD COLUMN io_logging_sampling_rate DOUBLE PRECISION NOT NULL DEFAULT 1;
ALTER TABLE workspaces ADD COLUMN io_logging_api_key_ids TEXT;
ALTER TABLE workspaces ADD COLUMN is_data_discount_logging_enabled BOOLEAN NOT NULL DEFAULT FALSE;

CREATE TABLE workspace_members (
    id TEXT NOT NULL PRIMARY KEY,
    organisation_id TEXT NOT NULL,
    workspace_id TEXT NOT NULL,
    user_id TEXT NOT NULL,
    role TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    UNIQUE (workspace_id, user_id),
    FOREIGN KEY (organisation_id, workspace_id) REFERENCES workspaces (organisation_id, id),
    FOREIGN KEY (organisation_id, user_id) REFERENCES users (organisation_id, id)
);

-- One row per interval; `lifetime` is one of them.
CREATE TABLE workspace_budgets (
    id TEXT NOT NULL PRIMARY KEY,
    organisation_id TEXT NOT NULL,
    workspace_id TEXT NOT NULL,
    reset_interval TEXT NOT NULL,
    limit_nanos BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    UNIQUE (workspace_id, reset_interval),
    FOREIGN KEY (organisation_id, workspace_id) REFERENCES workspaces (organisation_id, id)
);

ALTER TABLE api_keys ADD COLUMN external_user TEXT;
ALTER TABLE api_keys ADD COLUMN app_id BIGINT;
ALTER TABLE api_keys ADD COLUMN spawn_agent TEXT;
ALTER TABLE api_keys ADD COLUMN spawn_cloud TEXT;

-- Applications are known by the origin they are called back at, in the whole deployment.
CREATE TABLE applications (
    id BIGINT NOT NULL PRIMARY KEY,
    origin TEXT NOT NULL UNIQUE,
    title TEXT NOT NULL,
    created_at BIGINT NOT NULL
);

INSERT INTO sequences (name, value) VALUES ('applications', 0);

-- The code itself is never here, only its SHA-256.
CREATE TABLE auth_codes (
    hash TEXT NOT NULL PRIMARY KEY,
    organisation_id TEXT NOT NULL,
    workspace_id TEXT NOT NULL,
    app_id BIGINT NOT NULL REFERENCES applications (id),
    creator_user_id TEXT,
    challenge TEXT,
    challenge_method TEXT,
    key_name TEXT NOT NULL,
    limit_nanos BIGINT,
    limit_reset TEXT,
    key_expires_at BIGINT,
    spawn_agent TEXT,
    spawn_cloud TEXT,
    created_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL,
    failures BIGINT NOT NULL,
    used_at BIGINT,
    api_key_hash TEXT,
    -- The key that the code was asked for with, if it was one.
    issuer_key_hash TEXT,
    FOREIGN KEY (organisation_id, workspace_id) REFERENCES workspaces (organisation_id, id)
);

-- Those that wait for their exchange are counted whenever one is made; the others of the last day stay out of the way.
CREATE INDEX auth_codes_waiting ON auth_codes (organisation_id, expires_at) WHERE used_at IS NULL;
CREATE INDEX auth_codes_by_end ON auth_codes (expires_at);

-- Provider credentials of customers. Ciphertext and wrapped key go when the credential is deleted; the row stays.
CREATE TABLE credentials (
    id TEXT NOT NULL PRIMARY KEY,
    organisation_id TEXT NOT NULL,
    workspace_id TEXT NOT NULL,
    provider TEXT NOT NULL,
    name TEXT,
    label TEXT NOT NULL,
    disabled BOOLEAN NOT NULL,
    is_fallback BOOLEAN NOT NULL,
    is_required BOOLEAN NOT NULL,
    is_byok_only BOOLEAN NOT NULL,
    declared_region TEXT,
    declared_zdr BOOLEAN,
    allowed_models TEXT,
    allowed_user_ids TEXT,
    allowed_api_key_hashes TEXT,
    sort_order BIGINT NOT NULL,
    -- Scheme, host and port it may be sent to; none when this build cannot reach the provider.
    destination TEXT,
    seal_version BIGINT NOT NULL,
    master_key_id TEXT,
    wrapped_key BLOB,
    ciphertext BLOB,
    revision BIGINT NOT NULL,
    change_seq BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT,
    deleted_at BIGINT,
    FOREIGN KEY (organisation_id, workspace_id) REFERENCES workspaces (organisation_id, id)
);

CREATE UNIQUE INDEX credentials_by_change ON credentials (change_seq);
CREATE INDEX credentials_by_workspace ON credentials (organisation_id, workspace_id, provider, sort_order);
CREATE INDEX credentials_by_master_key ON credentials (master_key_id, id);

INSERT INTO sequences (name, value) VALUES ('credentials', 0);

-- What was changed, by whom. Each row holds the hash of the one before it, so that none can be changed or taken out
-- without a trace; the head is written in the same transaction.
CREATE TABLE audit (
    seq BIGINT NOT NULL PRIMARY KEY,
    id TEXT NOT NULL,
    organisation_id TEXT NOT NULL,
    at BIGINT NOT NULL,
    actor_kind TEXT NOT NULL,
    actor_id TEXT,
    action TEXT NOT NULL,
    target TEXT NOT NULL,
    request_id TEXT,
    address TEXT,
    old_values TEXT,
    new_values TEXT,
    previous_hash TEXT NOT NULL,
    hash TEXT NOT NULL
);

CREATE TABLE audit_head (
    name TEXT NOT NULL PRIMARY KEY,
    seq BIGINT NOT NULL,
    hash TEXT NOT NULL
);

INSERT INTO audit_head (name, seq, hash) VALUES ('audit', 0, '');

-- Answers to calls that carried an Idempotency-Key, without the secrets they held.
CREATE TABLE idempotency (
    organisation_id TEXT NOT NULL,
    key_hash TEXT NOT NULL,
    body_hash TEXT NOT NULL,
    answer TEXT,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (organisation_id, key_hash)
);

CREATE INDEX idempotency_by_time ON idempotency (created_at);

ALTER TABLE generations ADD COLUMN is_byok BOOLEAN NOT NULL DEFAULT FALSE;
ALTER TABLE generations ADD COLUMN list_cost_nanos BIGINT;

-- What each key spent on each UTC day, written with the records it sums: a window is a few rows instead of every
-- request since its start.
CREATE TABLE key_days (
    key_hash TEXT NOT NULL,
    day BIGINT NOT NULL,
    organisation_id TEXT NOT NULL,
    workspace_id TEXT NOT NULL,
    credit_nanos BIGINT NOT NULL,
    byok_nanos BIGINT NOT NULL,
    requests BIGINT NOT NULL,
    last_used_at BIGINT NOT NULL,
    PRIMARY KEY (key_hash, day)
);

CREATE INDEX key_days_by_workspace ON key_days (organisation_id, workspace_id, day);

INSERT INTO key_days (key_hash, day, organisation_id, workspace_id, credit_nanos, byok_nanos, requests, last_used_at)
SELECT key_hash, started_at / 86400000, organisation_id, workspace_id, CAST(COALESCE(SUM(cost_nanos), 0) AS BIGINT), 0,
    COUNT(*), MAX(started_at)
FROM generations
GROUP BY key_hash, started_at / 86400000, organisation_id, workspace_id;
