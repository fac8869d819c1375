-- Settings of requests under a name. A slug belongs to one workspace of an organisation.
CREATE TABLE presets (
    id TEXT NOT NULL PRIMARY KEY,
    organisation_id TEXT NOT NULL,
    workspace_id TEXT NOT NULL,
    slug TEXT NOT NULL,
    name TEXT NOT NULL,
    description TEXT,
    status TEXT NOT NULL,
    status_updated_at BIGINT,
    creator_user_id TEXT,
    -- The version that is used, and the number of the last one that was written.
    designated_version_id TEXT NOT NULL,
    last_version BIGINT NOT NULL,
    change_seq BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    FOREIGN KEY (organisation_id, workspace_id) REFERENCES workspaces (organisation_id, id)
);

CREATE UNIQUE INDEX presets_by_slug ON presets (organisation_id, slug);
CREATE UNIQUE INDEX presets_by_change ON presets (change_seq);
CREATE INDEX presets_by_workspace ON presets (organisation_id, workspace_id, updated_at);

-- A version never changes.
CREATE TABLE preset_versions (
    id TEXT NOT NULL PRIMARY KEY,
    organisation_id TEXT NOT NULL,
    preset_id TEXT NOT NULL REFERENCES presets (id),
    version BIGINT NOT NULL,
    -- JSON: what is merged into a request, and the system prompt as it was written.
    config TEXT NOT NULL,
    system TEXT,
    creator_id TEXT NOT NULL,
    created_at BIGINT NOT NULL
);

CREATE UNIQUE INDEX preset_versions_by_number ON preset_versions (preset_id, version);

INSERT INTO sequences (name, value) VALUES ('presets', 0);

-- The preset that a request was made with.
ALTER TABLE generations ADD COLUMN preset_id TEXT;
