//! Figures as people read them.

use tidegate_core::{Money, Timestamp};

const NANOS: i64 = 1_000_000_000;
const MICROS: i64 = 1_000;

/// Dollars: to the cent from one dollar on, below that to the millionth.
pub fn dollars(money: Money) -> String {
    let (sign, nanos) = if money.0 < 0 { ("-", money.0.unsigned_abs()) } else { ("", money.0.unsigned_abs()) };
    if nanos >= NANOS as u64 {
        let cents = (nanos + 5_000_000) / 10_000_000;
        return format!("{sign}${}.{:02}", count(cents / 100), cents % 100);
    }
    let micros = (nanos + MICROS as u64 / 2) / MICROS as u64;
    if micros == 0 {
        return if nanos == 0 { "$0".to_owned() } else { format!("{sign}<$0.000001") };
    }
    let digits = format!("{micros:06}");
    match micros >= 1_000_000 {
        true => format!("{sign}$1.00"),
        // A price is read more easily with the places that all prices have.
        false => format!("{sign}$0.{:0<2}", digits.trim_end_matches('0')),
    }
}

/// With commas between thousands.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A duration.
pub fn millis(millis: u64) -> String {
    match millis {
        0..1_000 => format!("{millis} ms"),
        1_000..60_000 => format!("{}.{} s", millis / 1_000, millis % 1_000 / 100),
        _ => format!("{} min {} s", millis / 60_000, millis % 60_000 / 1_000),
    }
}

/// To the second, in UTC.
pub fn instant(at: Timestamp) -> String {
    let text = at.to_string();
    text.get(..19).unwrap_or(&text).replacen('T', " ", 1)
}

/// A share in hundredths.
pub fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dollars_are_read_to_the_cent_or_to_the_millionth() {
        let cases = [
            (0, "$0"),
            (1, "<$0.000001"),
            (780_000, "$0.00078"),
            (500_000_000, "$0.50"),
            (999_999_700, "$1.00"),
            (12_344_999_999, "$12.34"),
            (1_234_567_890_000_000, "$1,234,567.89"),
            (-2_500_000_000, "-$2.50"),
        ];
        for (nanos, text) in cases {
            assert_eq!(dollars(Money(nanos)), text);
        }
    }

    #[test]
    fn counts_and_times_have_units_that_fit() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(count), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!([7, 1_250, 61_000].map(millis), ["7 ms", "1.2 s", "1 min 1 s"]);
        assert_eq!(instant(Timestamp(0)), "1970-01-01 00:00:00");
    }
}
