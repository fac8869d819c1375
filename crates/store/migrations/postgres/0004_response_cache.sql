-- The request whose answer was given once more, where nobody was called.
ALTER TABLE generations ADD COLUMN response_cache_source_id TEXT;
