-- Who is told of requests of a workspace.
CREATE TABLE destinations (
    id TEXT NOT NULL PRIMARY KEY,
    organisation_id TEXT NOT NULL,
    workspace_id TEXT NOT NULL,
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    enabled BOOLEAN NOT NULL,
    -- JSON: what may be shown. No statement looks into it.
    settings TEXT NOT NULL,
    -- Where and with which secrets it is reached, sealed; nothing once it is deleted.
    sealed BLOB,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    deleted_at BIGINT,
    FOREIGN KEY (organisation_id, workspace_id) REFERENCES workspaces (organisation_id, id)
);

CREATE UNIQUE INDEX destinations_by_name ON destinations (organisation_id, workspace_id, name) WHERE deleted_at IS NULL;

INSERT INTO sequences (name, value) VALUES ('destinations', 0);
