-- What the upstream itself calls an answer, where that is not the id of the message: `upstream_id` is the latter's.
ALTER TABLE generations ADD COLUMN native_id TEXT;
