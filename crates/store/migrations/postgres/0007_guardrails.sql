-- What keys, members and workspaces are held to: lists of models and providers, data policies, budgets, filters.
CREATE TABLE guardrails (
    id TEXT NOT NULL PRIMARY KEY,
    organisation_id TEXT NOT NULL,
    workspace_id TEXT NOT NULL,
    -- That of a workspace itself, which covers all of its traffic. It is made with the first change of it.
    is_default BOOLEAN NOT NULL,
    name TEXT NOT NULL,
    description TEXT,
    limit_nanos BIGINT,
    reset_interval TEXT,
    include_byok BOOLEAN NOT NULL,
    -- JSON: everything else. No statement looks into it.
    rules TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT,
    FOREIGN KEY (organisation_id, workspace_id) REFERENCES workspaces (organisation_id, id)
);

CREATE INDEX guardrails_by_workspace ON guardrails (organisation_id, workspace_id, created_at);

-- A key or a member has one guardrail at most.
CREATE TABLE guardrail_assignments (
    id TEXT NOT NULL PRIMARY KEY,
    organisation_id TEXT NOT NULL,
    guardrail_id TEXT NOT NULL REFERENCES guardrails (id),
    -- 'key' or 'member'
    kind TEXT NOT NULL,
    -- The hash of the key, or the id of the member.
    subject TEXT NOT NULL,
    assigned_by TEXT,
    created_at BIGINT NOT NULL
);

CREATE UNIQUE INDEX guardrail_assignments_by_subject ON guardrail_assignments (organisation_id, kind, subject);
CREATE INDEX guardrail_assignments_by_guardrail ON guardrail_assignments (guardrail_id, kind, created_at);

INSERT INTO sequences (name, value) VALUES ('guardrails', 0);
