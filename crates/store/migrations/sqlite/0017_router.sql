-- The name that stood for a choice of models, where a request was made with one.
ALTER TABLE generations ADD COLUMN router TEXT;
