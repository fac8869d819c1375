-- What was asked for and spent, by day, key, model and provider: kept when records are removed for their age.
CREATE TABLE activity_days (
    organisation_id TEXT NOT NULL,
    day BIGINT NOT NULL,
    workspace_id TEXT NOT NULL,
    key_hash TEXT NOT NULL,
    model TEXT NOT NULL,
    provider TEXT NOT NULL,
    credit_nanos BIGINT NOT NULL,
    byok_nanos BIGINT NOT NULL,
    requests BIGINT NOT NULL,
    prompt_tokens BIGINT NOT NULL,
    completion_tokens BIGINT NOT NULL,
    reasoning_tokens BIGINT NOT NULL,
    PRIMARY KEY (organisation_id, day, workspace_id, key_hash, model, provider)
);
INSERT INTO activity_days (organisation_id, day, workspace_id, key_hash, model, provider, credit_nanos, byok_nanos,
    requests, prompt_tokens, completion_tokens, reasoning_tokens)
SELECT organisation_id, started_at / 86400000, workspace_id, key_hash,
    CASE WHEN provider = '' THEN 'unknown' ELSE model END, provider,
    CAST(SUM(CASE WHEN cost_nanos > 0 THEN cost_nanos ELSE 0 END) AS BIGINT),
    CAST(SUM(CASE WHEN is_byok AND list_cost_nanos > 0 THEN list_cost_nanos ELSE 0 END) AS BIGINT),
    COUNT(*),
    CAST(SUM(CASE WHEN input_tokens < 1000000000000 THEN input_tokens ELSE 1000000000000 END) + SUM(CASE WHEN cache_read_tokens < 1000000000000 THEN cache_read_tokens ELSE 1000000000000 END)
        + SUM(CASE WHEN cache_write_tokens < 1000000000000 THEN cache_write_tokens ELSE 1000000000000 END)
        + SUM(CASE WHEN cache_write_1h_tokens < 1000000000000 THEN cache_write_1h_tokens ELSE 1000000000000 END) AS BIGINT),
    CAST(SUM(CASE WHEN output_tokens < 1000000000000 THEN output_tokens ELSE 1000000000000 END) AS BIGINT),
    CAST(SUM(CASE WHEN thinking_tokens < 1000000000000 THEN thinking_tokens ELSE 1000000000000 END) AS BIGINT)
FROM generations GROUP BY 1, 2, 3, 4, 5, 6;
