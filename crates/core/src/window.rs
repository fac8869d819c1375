//! Windows of spending: when they begin and when the next one does, in UTC. No job resets anything: a window is
//! computed from the time, so it only ever moves forward.

use jiff::civil::{Date, date};
use jiff::tz::Offset;

use crate::clock::Timestamp;

const DAY_MS: i64 = 24 * 60 * 60 * 1000;

/// When spending starts again from zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Window {
    /// At midnight.
    Daily,
    /// At midnight before Monday.
    Weekly,
    /// At midnight before the first of the month.
    Monthly,
}

impl Window {
    pub const ALL: [Self; 3] = [Self::Daily, Self::Weekly, Self::Monthly];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Daily => "daily",
            Self::Weekly => "weekly",
            Self::Monthly => "monthly",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "daily" => Some(Self::Daily),
            "weekly" => Some(Self::Weekly),
            "monthly" => Some(Self::Monthly),
            _ => None,
        }
    }

    /// The first moment of the window that `now` is in.
    pub fn start(self, now: Timestamp) -> Timestamp {
        midnight(self.first_day(now))
    }

    /// The first moment of the window after it.
    pub fn next(self, now: Timestamp) -> Timestamp {
        let first = self.first_day(now);
        midnight(match self {
            Self::Daily => first.saturating_add(1),
            Self::Weekly => first.saturating_add(7),
            Self::Monthly => first.saturating_add(i64::from(date_of(first).days_in_month())),
        })
    }

    /// The number of the window's first day, as [`day`] counts.
    pub fn first_day(self, now: Timestamp) -> i64 {
        let today = day(now);
        match self {
            Self::Daily => today,
            // Day 0 was a Thursday, the fourth day of its week.
            Self::Weekly => today - (today + 3).rem_euclid(7),
            Self::Monthly => today - i64::from(date_of(today).day()) + 1,
        }
    }
}

/// The UTC day an instant is in, counted from 1970-01-01.
pub fn day(instant: Timestamp) -> i64 {
    instant.0.div_euclid(DAY_MS)
}

/// The day of a date as `YYYY-MM-DD`, counted as [`day`] does.
pub fn parse_day(text: &str) -> Option<i64> {
    let date: Date = text.parse().ok().filter(|_| text.len() == "2026-08-24".len())?;
    let instant = date.to_zoned(jiff::tz::TimeZone::UTC).ok()?.timestamp();
    Some(day(Timestamp(instant.as_millisecond())))
}

/// A day as `YYYY-MM-DD`.
pub fn day_text(day: i64) -> String {
    date_of(day).to_string()
}

fn midnight(day: i64) -> Timestamp {
    Timestamp(day.saturating_mul(DAY_MS))
}

/// The date of a day; the first or last one there is for days that no calendar reaches.
fn date_of(day: i64) -> Date {
    let instant = jiff::Timestamp::from_millisecond(midnight(day).0);
    match instant {
        Ok(instant) => Offset::UTC.to_datetime(instant).date(),
        Err(_) if day < 0 => date(-9999, 1, 1),
        Err(_) => date(9999, 12, 31),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        Timestamp(text.parse::<jiff::Timestamp>().unwrap().as_millisecond())
    }

    #[test]
    fn windows_begin_and_end_at_midnight_utc() {
        // 2026-08-24 and 2024-01-01 were Mondays; 2024 had a 29th of February, 2100 will not.
        let cases = [
            (Window::Daily, "2026-08-24T00:00:00.000Z", "2026-08-24T00:00:00Z", "2026-08-25T00:00:00Z"),
            (Window::Daily, "2026-08-24T23:59:59.999Z", "2026-08-24T00:00:00Z", "2026-08-25T00:00:00Z"),
            (Window::Daily, "2026-12-31T12:00:00Z", "2026-12-31T00:00:00Z", "2027-01-01T00:00:00Z"),
            (Window::Daily, "1969-12-31T23:59:59.999Z", "1969-12-31T00:00:00Z", "1970-01-01T00:00:00Z"),
            (Window::Weekly, "2026-08-23T23:59:59.999Z", "2026-08-17T00:00:00Z", "2026-08-24T00:00:00Z"),
            (Window::Weekly, "2026-08-24T00:00:00.000Z", "2026-08-24T00:00:00Z", "2026-08-31T00:00:00Z"),
            (Window::Weekly, "2024-01-03T10:00:00Z", "2024-01-01T00:00:00Z", "2024-01-08T00:00:00Z"),
            (Window::Weekly, "2023-12-31T23:59:59.999Z", "2023-12-25T00:00:00Z", "2024-01-01T00:00:00Z"),
            (Window::Weekly, "1970-01-01T00:00:00Z", "1969-12-29T00:00:00Z", "1970-01-05T00:00:00Z"),
            (Window::Monthly, "2024-02-29T23:59:59.999Z", "2024-02-01T00:00:00Z", "2024-03-01T00:00:00Z"),
            (Window::Monthly, "2024-03-01T00:00:00.000Z", "2024-03-01T00:00:00Z", "2024-04-01T00:00:00Z"),
            (Window::Monthly, "2100-02-28T12:00:00Z", "2100-02-01T00:00:00Z", "2100-03-01T00:00:00Z"),
            (Window::Monthly, "2026-12-31T23:59:59.999Z", "2026-12-01T00:00:00Z", "2027-01-01T00:00:00Z"),
        ];
        for (window, now, start, next) in cases {
            let now = at(now);
            assert_eq!((window.start(now), window.next(now)), (at(start), at(next)), "{window:?} {now}");
        }
    }

    #[test]
    fn a_window_holds_its_moment_and_the_next_one_begins_where_it_ends() {
        for window in [Window::Daily, Window::Weekly, Window::Monthly] {
            for hours in (0..24 * 800).step_by(7) {
                let now = Timestamp(at("2023-11-30T00:00:00Z").0 + hours * 3_600_000 + 1);
                let (start, next) = (window.start(now), window.next(now));
                assert!(start <= now && now < next, "{window:?} {now}");
                assert_eq!(window.start(next), next);
                assert_eq!(window.start(Timestamp(next.0 - 1)), start);
            }
        }
    }

    #[test]
    fn no_instant_panics() {
        for window in [Window::Daily, Window::Weekly, Window::Monthly] {
            for millis in [i64::MIN, i64::MIN / 2, -1, 0, i64::MAX / 2, i64::MAX] {
                let now = Timestamp(millis);
                assert!(window.start(now) <= now || millis < 0, "{window:?} {millis}");
                assert!(window.next(now) >= window.start(now));
            }
        }
    }
}
