-- What people say about answers, beside the record.
CREATE TABLE generation_feedback (
    organisation_id TEXT NOT NULL,
    generation_id TEXT NOT NULL,
    category TEXT NOT NULL,
    comment TEXT,
    -- The hash of the key that said it.
    created_by TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (generation_id, category)
);
