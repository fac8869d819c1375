-- Times are Unix milliseconds, money is nano-dollars, JSON is text. The other database has the same file with the same
-- tables; a test compares them column by column.

CREATE TABLE meta (
    name TEXT NOT NULL PRIMARY KEY,
    value TEXT NOT NULL
);

-- A writer takes its number by updating the row inside its own transaction. That makes writers wait for each other, so
-- numbers become visible in their order and a reader that asks for what is newer than N misses nothing.
CREATE TABLE sequences (
    name TEXT NOT NULL PRIMARY KEY,
    value BIGINT NOT NULL
);

INSERT INTO sequences (name, value) VALUES ('api_keys', 0);

CREATE TABLE organisations (
    id TEXT NOT NULL PRIMARY KEY,
    name TEXT NOT NULL,
    created_at BIGINT NOT NULL
);

CREATE TABLE workspaces (
    id TEXT NOT NULL PRIMARY KEY,
    organisation_id TEXT NOT NULL REFERENCES organisations (id),
    name TEXT NOT NULL,
    slug TEXT NOT NULL,
    description TEXT,
    default_text_model TEXT,
    created_at BIGINT NOT NULL,
    updated_at BIGINT,
    deleted_at BIGINT,
    -- What the foreign keys of other tables point to, so that no row can name a workspace of another organisation.
    UNIQUE (organisation_id, id)
);

-- A deleted workspace gives its slug back.
CREATE UNIQUE INDEX workspaces_by_slug ON workspaces (organisation_id, slug) WHERE deleted_at IS NULL;

CREATE TABLE api_keys (
    hash TEXT NOT NULL PRIMARY KEY,
    organisation_id TEXT NOT NULL,
    workspace_id TEXT NOT NULL,
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    label TEXT NOT NULL,
    disabled BOOLEAN NOT NULL,
    limit_nanos BIGINT,
    limit_reset TEXT,
    include_byok_in_limit BOOLEAN NOT NULL,
    expires_at BIGINT,
    creator_user_id TEXT,
    created_at BIGINT NOT NULL,
    updated_at BIGINT,
    deleted_at BIGINT,
    change_seq BIGINT NOT NULL,
    FOREIGN KEY (organisation_id, workspace_id) REFERENCES workspaces (organisation_id, id)
);

CREATE UNIQUE INDEX api_keys_by_change ON api_keys (change_seq);
CREATE INDEX api_keys_by_workspace ON api_keys (organisation_id, workspace_id, created_at);

-- No foreign keys: a record arrives late and must be kept, whatever has happened to its key or workspace meanwhile.
-- Ids begin with their time, so rows are appended, and a range of time is a range of ids: no further index is paid for
-- at every request.
CREATE TABLE generations (
    id TEXT NOT NULL PRIMARY KEY,
    organisation_id TEXT NOT NULL,
    workspace_id TEXT NOT NULL,
    key_hash TEXT NOT NULL,
    model TEXT NOT NULL,
    provider TEXT NOT NULL,
    outcome TEXT NOT NULL,
    status BIGINT NOT NULL,
    streamed BOOLEAN NOT NULL,
    stop_reason TEXT,
    upstream_id TEXT,
    error_type TEXT,
    input_tokens BIGINT NOT NULL,
    output_tokens BIGINT NOT NULL,
    cache_read_tokens BIGINT NOT NULL,
    cache_write_tokens BIGINT NOT NULL,
    cache_write_1h_tokens BIGINT NOT NULL,
    thinking_tokens BIGINT NOT NULL,
    web_searches BIGINT NOT NULL,
    web_fetches BIGINT NOT NULL,
    usage_reported BOOLEAN NOT NULL,
    cost_nanos BIGINT,
    session_id TEXT,
    external_user TEXT,
    attempts TEXT NOT NULL,
    started_at BIGINT NOT NULL,
    first_content_ms BIGINT,
    duration_ms BIGINT NOT NULL,
    request_bytes BIGINT NOT NULL,
    response_bytes BIGINT NOT NULL
);
