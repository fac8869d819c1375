-- Tokens of the prompt that came from the provider's cache. Of days before this nobody counted them: to read all records
-- again would hold up whoever writes here.
ALTER TABLE activity_days ADD COLUMN cached_tokens BIGINT NOT NULL DEFAULT 0;
