-- Who a person is to the issuer that they sign in with, once they did.
ALTER TABLE users ADD COLUMN issuer TEXT;
ALTER TABLE users ADD COLUMN subject TEXT;

CREATE UNIQUE INDEX users_by_subject ON users (organisation_id, issuer, subject)
    WHERE removed_at IS NULL AND subject IS NOT NULL;

-- Sessions of people that were ended before their time, by the digest of their cookie, until that is over.
CREATE TABLE ended_sessions (
    organisation_id TEXT NOT NULL REFERENCES organisations (id),
    digest TEXT NOT NULL,
    until BIGINT NOT NULL,
    PRIMARY KEY (organisation_id, digest)
);
