-- Records stand in the order in which they come, beside an index of their ids, which grows at its end: a table that is
-- its own index is laid out anew, several pages at a time, with every few records. What nearly all records have in common
-- is what a column holds that is not named, so that it need not be said of each; it stands last.
CREATE TABLE records (
    id TEXT NOT NULL PRIMARY KEY,
    organisation_id TEXT NOT NULL,
    workspace_id TEXT NOT NULL,
    key_hash TEXT NOT NULL,
    model TEXT NOT NULL,
    provider TEXT NOT NULL,
    streamed BOOLEAN NOT NULL,
    stop_reason TEXT,
    upstream_id TEXT,
    native_id TEXT,
    native_stop_reason TEXT,
    input_tokens BIGINT NOT NULL,
    output_tokens BIGINT NOT NULL,
    cache_read_tokens BIGINT NOT NULL,
    cache_write_tokens BIGINT NOT NULL,
    thinking_tokens BIGINT NOT NULL,
    reserved_nanos BIGINT NOT NULL DEFAULT 0,
    cost_nanos BIGINT,
    is_byok BOOLEAN NOT NULL DEFAULT FALSE,
    list_cost_nanos BIGINT,
    upstream_cost_nanos BIGINT,
    service_tier TEXT,
    user_agent TEXT,
    attempts TEXT NOT NULL,
    started_at BIGINT NOT NULL,
    first_content_ms BIGINT,
    duration_ms BIGINT NOT NULL,
    request_bytes BIGINT NOT NULL,
    response_bytes BIGINT NOT NULL,
    outcome TEXT NOT NULL DEFAULT 'complete',
    status BIGINT NOT NULL DEFAULT 200,
    usage_reported BOOLEAN NOT NULL DEFAULT TRUE,
    settlement TEXT NOT NULL DEFAULT 'settled',
    cache_write_1h_tokens BIGINT NOT NULL DEFAULT 0,
    web_searches BIGINT NOT NULL DEFAULT 0,
    web_fetches BIGINT NOT NULL DEFAULT 0,
    is_estimated BOOLEAN NOT NULL DEFAULT FALSE,
    is_clamped BOOLEAN NOT NULL DEFAULT FALSE,
    error_type TEXT,
    -- Counts that few requests have, as JSON.
    other_usage TEXT,
    reported_cost_nanos BIGINT,
    cache_discount_nanos BIGINT,
    session_id TEXT,
    external_user TEXT,
    referer TEXT,
    title TEXT,
    response_cache_source_id TEXT,
    preset_id TEXT,
    parent_id TEXT,
    api TEXT,
    router TEXT
);

INSERT INTO records (id, organisation_id, workspace_id, key_hash, model, provider, streamed, stop_reason, upstream_id,
    native_id, native_stop_reason, input_tokens, output_tokens, cache_read_tokens, cache_write_tokens, thinking_tokens,
    reserved_nanos, cost_nanos, is_byok, list_cost_nanos, upstream_cost_nanos, service_tier, user_agent, attempts,
    started_at, first_content_ms, duration_ms, request_bytes, response_bytes, outcome, status, usage_reported,
    settlement, cache_write_1h_tokens, web_searches, web_fetches, is_estimated, is_clamped, error_type, other_usage,
    reported_cost_nanos, cache_discount_nanos, session_id, external_user, referer, title, response_cache_source_id,
    preset_id, parent_id, api, router)
SELECT id, organisation_id, workspace_id, key_hash, model, provider, streamed, stop_reason, upstream_id,
    native_id, native_stop_reason, input_tokens, output_tokens, cache_read_tokens, cache_write_tokens, thinking_tokens,
    reserved_nanos, cost_nanos, is_byok, list_cost_nanos, upstream_cost_nanos, service_tier, user_agent, attempts,
    started_at, first_content_ms, duration_ms, request_bytes, response_bytes, outcome, status, usage_reported,
    settlement, cache_write_1h_tokens, web_searches, web_fetches, is_estimated, is_clamped, error_type, other_usage,
    reported_cost_nanos, cache_discount_nanos, session_id, external_user, referer, title, response_cache_source_id,
    preset_id, parent_id, api, router
FROM generations ORDER BY id;

-- Each page of the old table would be written over with zeros, and kept twice until all is done: for old copies of records
-- without any secret, and as long again as all the rest takes.
PRAGMA secure_delete = FAST;
DROP TABLE generations;
PRAGMA secure_delete = ON;
ALTER TABLE records RENAME TO generations;
CREATE INDEX generations_by_message ON generations (upstream_id) WHERE upstream_id IS NOT NULL;
CREATE INDEX generations_by_parent ON generations (parent_id) WHERE parent_id IS NOT NULL;
