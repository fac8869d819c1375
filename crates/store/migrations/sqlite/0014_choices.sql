-- Counts the changes of what workspaces choose for requests that leave it open.
INSERT INTO sequences (name, value) VALUES ('choices', 0);
