-- What a workspace sets for plugins of its requests.
CREATE TABLE workspace_plugins (
    organisation_id TEXT NOT NULL,
    workspace_id TEXT NOT NULL,
    plugin_id TEXT NOT NULL,
    -- Nothing where it is left to the requests.
    enabled BOOLEAN,
    -- JSON: the other members of an entry of `plugins`. No statement looks into it.
    config TEXT NOT NULL,
    prevent_overrides BOOLEAN NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    PRIMARY KEY (organisation_id, workspace_id, plugin_id),
    FOREIGN KEY (organisation_id, workspace_id) REFERENCES workspaces (organisation_id, id)
);

INSERT INTO sequences (name, value) VALUES ('plugins', 0);
