//! The migrations, in pairs: each number has one file per database, under the same name. They only go forward, and
//! what they leave behind must still be readable by the release before.

use sqlx::SqlSafeStr;
use sqlx::migrate::{Migration, MigrationType, Migrator};

struct Pair {
    number: i64,
    name: &'static str,
    #[cfg(test)]
    file: &'static str,
    sqlite: &'static str,
    postgres: &'static str,
}

macro_rules! pair {
    ($number:literal, $name:literal, $file:literal) => {
        Pair {
            number: $number,
            name: $name,
            #[cfg(test)]
            file: $file,
            sqlite: include_str!(concat!("../migrations/sqlite/", $file)),
            postgres: include_str!(concat!("../migrations/postgres/", $file)),
        }
    };
}

/// A file that was released is never changed again: stores remember its checksum and would refuse to start.
const PAIRS: &[Pair] = &[
    pair!(1, "first", "0001_first.sql"),
    pair!(2, "accounts", "0002_accounts.sql"),
    pair!(3, "ledger", "0003_ledger.sql"),
    pair!(4, "response_cache", "0004_response_cache.sql"),
    pair!(5, "presets", "0005_presets.sql"),
    pair!(6, "turns", "0006_turns.sql"),
    pair!(7, "guardrails", "0007_guardrails.sql"),
    pair!(8, "destinations", "0008_destinations.sql"),
    pair!(9, "plugins", "0009_plugins.sql"),
    pair!(10, "activity", "0010_activity.sql"),
    pair!(11, "files", "0011_files.sql"),
    pair!(12, "contents", "0012_contents.sql"),
    pair!(13, "feedback", "0013_feedback.sql"),
    pair!(14, "choices", "0014_choices.sql"),
    pair!(15, "api", "0015_api.sql"),
    pair!(16, "cached_tokens", "0016_cached_tokens.sql"),
    pair!(17, "router", "0017_router.sql"),
    pair!(18, "people", "0018_people.sql"),
    pair!(19, "native_ids", "0019_native_ids.sql"),
    pair!(20, "records", "0020_records.sql"),
];

/// The number of the last change to the tables that this build knows.
pub const SCHEMA: i64 = PAIRS[PAIRS.len() - 1].number;

pub(crate) fn sqlite() -> Migrator {
    migrator(|pair| pair.sqlite)
}

pub(crate) fn postgres() -> Migrator {
    migrator(|pair| pair.postgres)
}

fn migrator(text: impl Fn(&Pair) -> &'static str) -> Migrator {
    let migrations = PAIRS.iter().map(|pair| {
        Migration::new(pair.number, pair.name.into(), MigrationType::Simple, text(pair).into_sql_str(), false)
    });
    let mut migrator = Migrator::with_migrations(migrations.collect());
    // A newer release may have been here already; its tables stay readable for us, so that is no error.
    migrator.set_ignore_missing(true);
    migrator
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn every_migration_file_has_its_twin_and_is_run() {
        let listed: Vec<_> = PAIRS.iter().map(|pair| pair.file.to_owned()).collect();
        for folder in ["sqlite", "postgres"] {
            let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("migrations").join(folder);
            let names =
                std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
            let mut names: Vec<_> = names.collect();
            names.sort();
            assert_eq!(names, listed);
        }
        for pair in PAIRS {
            assert_eq!(pair.file, format!("{:04}_{}.sql", pair.number, pair.name));
        }
    }
}
