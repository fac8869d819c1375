-- What nearly all records have in common is what a column holds that is not named, so that it need not be said of each.
ALTER TABLE generations ALTER COLUMN outcome SET DEFAULT 'complete';
ALTER TABLE generations ALTER COLUMN status SET DEFAULT 200;
ALTER TABLE generations ALTER COLUMN usage_reported SET DEFAULT TRUE;
ALTER TABLE generations ALTER COLUMN cache_write_1h_tokens SET DEFAULT 0;
ALTER TABLE generations ALTER COLUMN web_searches SET DEFAULT 0;
ALTER TABLE generations ALTER COLUMN web_fetches SET DEFAULT 0;
