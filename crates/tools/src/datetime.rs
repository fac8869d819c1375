//! What time it is somewhere.

use jiff::tz::TimeZone;
use tidegate_core::Timestamp;

/// Whether a name of the time zone database is known.
pub fn is_zone(name: &str) -> bool {
    TimeZone::get(name).is_ok()
}

/// The time in a zone with its offset, to the millisecond; `None` when nobody knows the zone.
pub fn told(now: Timestamp, zone: &str) -> Option<String> {
    let zone = TimeZone::get(zone).ok()?;
    let here = jiff::Timestamp::from_millisecond(now.0).ok()?.to_zoned(zone);
    Some(here.strftime("%Y-%m-%dT%H:%M:%S%.3f%:z").to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_is_told_with_the_offset_of_its_place_and_season() {
        // 2026-08-24T10:30:00Z, and the winter before.
        let (summer, winter) = (Timestamp(1_787_567_400_000), Timestamp(1_769_250_600_007));
        assert_eq!(told(summer, "Europe/Paris").as_deref(), Some("2026-08-24T12:30:00.000+02:00"));
        assert_eq!(told(winter, "Europe/Paris").as_deref(), Some("2026-01-24T11:30:00.007+01:00"));
        assert_eq!(told(summer, "UTC").as_deref(), Some("2026-08-24T10:30:00.000+00:00"));
        assert_eq!(told(summer, "Asia/Kathmandu").as_deref(), Some("2026-08-24T16:15:00.000+05:45"));
        assert_eq!(told(summer, "Europe/Atlantis"), None);
        assert!(is_zone("America/New_York") && !is_zone("") && !is_zone("../etc/passwd"));
    }
}
