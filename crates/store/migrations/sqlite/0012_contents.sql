-- What was said in requests of workspaces that want it kept.
CREATE TABLE generation_contents (
    generation_id TEXT NOT NULL PRIMARY KEY,
    organisation_id TEXT NOT NULL,
    workspace_id TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    -- The master key that it is sealed under: it is not given up as long as a row needs it.
    master_key_id TEXT NOT NULL,
    sealed BLOB NOT NULL
);

CREATE INDEX generation_contents_by_age ON generation_contents (created_at);
CREATE INDEX generation_contents_by_workspace ON generation_contents (organisation_id, workspace_id);
CREATE INDEX generation_contents_by_master_key ON generation_contents (master_key_id);

INSERT INTO sequences (name, value) VALUES ('contents', 0);
