-- Tokens of the prompt that came from the provider's cache. Of days whose records have left nobody knows them any more.
ALTER TABLE activity_days ADD COLUMN cached_tokens BIGINT NOT NULL DEFAULT 0;
UPDATE activity_days SET cached_tokens = sums.cached_tokens
FROM (
    SELECT organisation_id, started_at / 86400000 AS day, workspace_id, key_hash,
        CASE WHEN provider = '' THEN 'unknown' ELSE model END AS model, provider,
        CAST(SUM(CASE WHEN cache_read_tokens < 1000000000000 THEN cache_read_tokens ELSE 1000000000000 END) AS BIGINT)
            AS cached_tokens
    FROM generations GROUP BY 1, 2, 3, 4, 5, 6
) AS sums
WHERE activity_days.organisation_id = sums.organisation_id AND activity_days.day = sums.day
    AND activity_days.workspace_id = sums.workspace_id AND activity_days.key_hash = sums.key_hash
    AND activity_days.model = sums.model AND activity_days.provider = sums.provider;
