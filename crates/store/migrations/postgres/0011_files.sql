-- Files of a workspace. Their contents stand apart: lists and new master keys do not touch them.
CREATE TABLE files (
    id TEXT NOT NULL PRIMARY KEY,
    organisation_id TEXT NOT NULL,
    workspace_id TEXT NOT NULL,
    filename TEXT NOT NULL,
    mime_type TEXT NOT NULL,
    -- What it is for, where whoever sent it said so.
    purpose TEXT,
    size_bytes BIGINT NOT NULL,
    -- The key of its contents, wrapped under a master key.
    seal_version BIGINT NOT NULL,
    master_key_id TEXT NOT NULL,
    wrapped_key BYTEA NOT NULL,
    created_at BIGINT NOT NULL,
    FOREIGN KEY (organisation_id, workspace_id) REFERENCES workspaces (organisation_id, id)
);

CREATE INDEX files_by_workspace ON files (organisation_id, workspace_id, id);
CREATE INDEX files_by_master_key ON files (master_key_id, id);

CREATE TABLE file_contents (
    file_id TEXT NOT NULL PRIMARY KEY REFERENCES files (id),
    ciphertext BYTEA NOT NULL
);

-- What tools said that clients do not get to see, for the day in which calls may come back. Sealed.
CREATE TABLE tool_results (
    organisation_id TEXT NOT NULL,
    workspace_id TEXT NOT NULL,
    id TEXT NOT NULL,
    sealed BYTEA NOT NULL,
    expires_at BIGINT NOT NULL,
    PRIMARY KEY (organisation_id, workspace_id, id)
);

CREATE INDEX tool_results_by_age ON tool_results (expires_at);
