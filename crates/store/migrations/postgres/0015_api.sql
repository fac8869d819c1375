-- What a request asked for, where that was not a message.
ALTER TABLE generations ADD COLUMN api TEXT;
