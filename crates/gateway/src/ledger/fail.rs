//! Named points at which tests let the process die, the journal fail or the clock jump. In a release they are nothing.

use std::io;
use std::sync::Arc;

use tidegate_core::clock::{Clock, SystemClock};
use tidegate_store::journal::JournalError;

/// Dies here when `TIDEGATE_CRASH_AT` names the point; with `name:3`, at its third passing.
#[cfg(debug_assertions)]
pub fn point(name: &'static str) {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicI64, Ordering};
    static AT: OnceLock<Option<(String, AtomicI64)>> = OnceLock::new();
    let at = AT.get_or_init(|| {
        let text = std::env::var("TIDEGATE_CRASH_AT").ok()?;
        let (name, count) = text.split_once(':').unwrap_or((&text, "1"));
        Some((name.to_owned(), AtomicI64::new(count.parse().ok()?)))
    });
    if let Some((wanted, left)) = at
        && wanted == name
        && left.fetch_sub(1, Ordering::SeqCst) == 1
    {
        std::process::abort();
    }
}

#[cfg(not(debug_assertions))]
#[inline(always)]
pub fn point(_: &'static str) {}

/// Makes the disk of the journal full while the file that `TIDEGATE_JOURNAL_FULL` names is there.
#[cfg(debug_assertions)]
pub fn journal() -> Result<(), JournalError> {
    use std::sync::OnceLock;
    static FILE: OnceLock<Option<std::path::PathBuf>> = OnceLock::new();
    let file = FILE.get_or_init(|| std::env::var_os("TIDEGATE_JOURNAL_FULL").map(Into::into));
    match file {
        Some(file) if file.exists() => Err(JournalError::Full),
        _ => Ok(()),
    }
}

#[cfg(not(debug_assertions))]
pub fn journal() -> Result<(), JournalError> {
    Ok(())
}

/// Keeps commits from the disk while the file that `TIDEGATE_JOURNAL_UNSYNCED` names is there.
#[cfg(debug_assertions)]
pub fn sync() -> io::Result<()> {
    use std::sync::OnceLock;
    static FILE: OnceLock<Option<std::path::PathBuf>> = OnceLock::new();
    let file = FILE.get_or_init(|| std::env::var_os("TIDEGATE_JOURNAL_UNSYNCED").map(Into::into));
    match file {
        Some(file) if file.exists() => Err(io::Error::other("the disk failed")),
        _ => Ok(()),
    }
}

#[cfg(not(debug_assertions))]
#[inline(always)]
pub fn sync() -> io::Result<()> {
    Ok(())
}

/// The machine's clock; with `TIDEGATE_CLOCK_FILE`, ahead of it by as many milliseconds as that file says. A second number
/// in it moves the steady clock, which tells how long something took.
#[cfg(debug_assertions)]
pub fn clock() -> Arc<dyn Clock> {
    use std::path::PathBuf;
    use std::time::{Duration, Instant};
    use tidegate_core::Timestamp;
    struct Shifted(PathBuf);
    impl Shifted {
        fn by(&self, place: usize) -> i64 {
            let text = std::fs::read_to_string(&self.0).unwrap_or_default();
            text.split_whitespace().nth(place).and_then(|shift| shift.parse().ok()).unwrap_or(0)
        }
    }
    impl Clock for Shifted {
        fn now(&self) -> Timestamp {
            Timestamp(SystemClock.now().0.saturating_add(self.by(0)))
        }

        fn instant(&self) -> Instant {
            SystemClock.instant() + Duration::from_millis(self.by(1).unsigned_abs())
        }
    }
    match std::env::var_os("TIDEGATE_CLOCK_FILE") {
        Some(file) => Arc::new(Shifted(file.into())),
        None => Arc::new(SystemClock),
    }
}

#[cfg(not(debug_assertions))]
pub fn clock() -> Arc<dyn Clock> {
    Arc::new(SystemClock)
}
