//! Instants as account operations are sent them.

use tidegate_core::Timestamp;

/// An instant in RFC 3339 after `now`, or what is wrong with it.
pub fn future(text: &str, now: Timestamp, utc_only: bool) -> Result<Timestamp, &'static str> {
    let parsed = instant(text).ok_or("must be a time such as 2027-01-31T00:00:00Z")?;
    let is_utc = text.ends_with(['Z', 'z']) || text.ends_with("+00:00");
    if utc_only && !is_utc {
        return Err("must be written in UTC, with Z or +00:00");
    }
    if parsed <= now { Err("must lie in the future") } else { Ok(parsed) }
}

/// An instant in the form of RFC 3339, `date-time`, and in no other that a calendar's library may understand as well.
pub fn instant(text: &str) -> Option<Timestamp> {
    let (civil, rest) = text.split_at_checked("2027-01-31T00:00:00".len())?;
    let fits = civil.bytes().enumerate().all(|(place, byte)| match place {
        4 | 7 => byte == b'-',
        10 => matches!(byte, b'T' | b't'),
        13 | 16 => byte == b':',
        _ => byte.is_ascii_digit(),
    });
    let offset = match rest.strip_prefix('.') {
        Some(rest) => rest.trim_start_matches(|digit: char| digit.is_ascii_digit()),
        None => rest,
    };
    let is_offset = match offset.as_bytes() {
        [b'Z' | b'z'] => true,
        [b'+' | b'-', hours @ .., b':', m, n] => {
            let are_digits = hours.len() == 2 && [hours, &[*m, *n]].concat().iter().all(u8::is_ascii_digit);
            are_digits && hours <= b"23".as_slice() && *m <= b'5'
        }
        _ => false,
    };
    let is_bare_point = rest.starts_with('.') && rest.len() == offset.len() + 1;
    if !fits || !is_offset || is_bare_point {
        return None;
    }
    match text.parse::<jiff::Timestamp>() {
        Ok(parsed) => Some(Timestamp(parsed.as_millisecond().min(Timestamp::LAST.0))),
        // The last day of the calendar is a common way to say never, and lies behind the last instant we can hold.
        Err(_) if civil.starts_with("9999-12-3") => {
            civil.parse::<jiff::civil::DateTime>().ok().map(|_| Timestamp::LAST)
        }
        Err(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_790_000_000_000);

    #[test]
    fn an_instant_is_written_as_rfc_3339_says() {
        let at = |text| future(text, NOW, false).map(|instant| instant.to_string());
        for (text, expected) in [
            ("2027-06-01T00:00:00Z", "2027-06-01T00:00:00.000Z"),
            ("2027-06-01t00:00:00z", "2027-06-01T00:00:00.000Z"),
            ("2027-06-01T00:00:00.25Z", "2027-06-01T00:00:00.250Z"),
            ("2027-06-01T02:00:00+02:00", "2027-06-01T00:00:00.000Z"),
            ("2027-05-31T22:30:00.5-01:30", "2027-06-01T00:00:00.500Z"),
            // Behind the last instant that there is: as late as can be.
            ("9999-12-31T23:59:59Z", "9999-12-30T22:00:00.000Z"),
            ("9999-12-31T23:59:59.999999999Z", "9999-12-30T22:00:00.000Z"),
            ("9999-12-31T23:59:59+00:00", "9999-12-30T22:00:00.000Z"),
            ("9999-12-30T22:00:00.999Z", "9999-12-30T22:00:00.000Z"),
        ] {
            assert_eq!(at(text).as_deref(), Ok(expected), "{text}");
        }
        for text in [
            "",
            "never",
            "9999-12-3zzz",
            "9999-12-32T00:00:00Z",
            "9999-12-31T24:00:00Z",
            "9999-12-31T23:59:59",
            "20270601T000000Z",
            "2027-06-01",
            "2027-06-01T00:00Z",
            "2027-06-01 00:00:00Z",
            "2027-06-01T00:00:00",
            "2027-06-01T00:00:00.Z",
            "2027-06-01T00:00:00,5Z",
            "2027-06-01T00:00:00+02",
            "2027-06-01T00:00:00-24:00",
            "2027-06-01T00:00:00+02:60",
            "2027-06-01T00:00:00+0200",
            "2027-06-01T00:00:00+02:00:00",
            "2027-06-01T00:00:00+02:00[Europe/Paris]",
            "2027-06-01T00:00:00Z[UTC]",
            " 2027-06-01T00:00:00Z",
            "+002027-06-01T00:00:00Z",
            "2027-02-30T00:00:00Z",
            "2027-06-01T00:00:00\u{e9}Z",
        ] {
            assert_eq!(at(text), Err("must be a time such as 2027-01-31T00:00:00Z"), "{text}");
        }
    }
}
