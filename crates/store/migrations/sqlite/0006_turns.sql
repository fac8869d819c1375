-- The first turn of the loop that a request is a turn of; nothing of a request that stands alone.
ALTER TABLE generations ADD COLUMN parent_id TEXT;
CREATE INDEX generations_by_parent ON generations (parent_id) WHERE parent_id IS NOT NULL;
