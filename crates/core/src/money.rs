//! Money as whole nano-dollars, prices as nano-dollars per million units. No floating point anywhere: decimals are read
//! from their text and a cost is rounded once, half up, at its end.

use std::fmt;

use serde::{Deserialize, Serialize};

const NANOS: i64 = 1_000_000_000;
const LARGEST_DOLLARS: i64 = 1_000_000_000;

/// An amount in nano-dollars.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Money(pub i64);

/// Nano-dollars per million units (tokens, mostly; some prices are per piece and then per million pieces).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Price(pub i64);

/// A multiplier or a share, in millionths: exact, because it is written with at most six decimal places.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Factor(u64);

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidFactor {
    #[error("is not a decimal number")]
    NotDecimal,
    #[error("must not be negative")]
    Negative,
    #[error("must be at most 1000")]
    TooLarge,
    #[error("must have at most six decimal places")]
    TooFine,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidAmount {
    #[error("is not a decimal number")]
    NotDecimal,
    #[error("must not be negative")]
    Negative,
    #[error("must be at most 1000000000 dollars")]
    TooLarge,
}

impl Money {
    pub const ZERO: Self = Self(0);
    /// The largest amount that the interface takes.
    pub const LARGEST: Self = Self(LARGEST_DOLLARS * NANOS);

    /// The sum, at the edge of what an amount can be when it does not fit.
    pub fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    pub fn minus(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// Reads dollars from decimal text (`12`, `0.000177`, `1.5e-3`), rounded half up to nine places.
    pub fn parse(text: &str) -> Result<Self, InvalidAmount> {
        parse_nanos(text).map(Self)
    }
}

impl Price {
    /// Reads dollars per million units from decimal text.
    pub fn parse(text: &str) -> Result<Self, InvalidAmount> {
        parse_nanos(text).map(Self)
    }

    /// What `units` cost, in millionths of a nano-dollar: exact, to be summed and then rounded by [`round`].
    pub fn times(self, units: u64) -> i128 {
        i128::from(self.0) * i128::from(units)
    }
}

impl Factor {
    pub const NONE: Self = Self(0);
    pub const ONE: Self = Self(1_000_000);
    /// The largest there is: a thousand times.
    pub const LARGEST: Self = Self(1_000_000_000);

    /// From millionths; none beyond the largest.
    pub const fn new(millionths: u64) -> Option<Self> {
        if millionths <= Self::LARGEST.0 { Some(Self(millionths)) } else { None }
    }

    pub const fn millionths(self) -> u64 {
        self.0
    }

    /// What is left of one, none when it is more than that.
    pub fn rest(self) -> Option<Self> {
        Self::ONE.0.checked_sub(self.0).map(Self)
    }

    /// Reads a decimal number: `1.1`, `0.5`, `2`.
    pub fn parse(text: &str) -> Result<Self, InvalidFactor> {
        let billionths = parse_nanos(text).map_err(|error| match error {
            InvalidAmount::NotDecimal => InvalidFactor::NotDecimal,
            InvalidAmount::Negative => InvalidFactor::Negative,
            InvalidAmount::TooLarge => InvalidFactor::TooLarge,
        })?;
        if billionths % 1_000 != 0 {
            return Err(InvalidFactor::TooFine);
        }
        u64::try_from(billionths / 1_000).ok().and_then(Self::new).ok_or(InvalidFactor::TooLarge)
    }
}

impl Default for Factor {
    fn default() -> Self {
        Self::ONE
    }
}

/// As a decimal number, without trailing zeros.
impl fmt::Display for Factor {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        Money(i64::try_from(self.0 * 1_000).unwrap_or(i64::MAX)).fmt(out)
    }
}

/// Rounds a sum of [`Price::times`] half up to nano-dollars. To be called once per cost.
pub fn round(millionths: i128) -> Money {
    let nanos = (millionths + 500_000).div_euclid(1_000_000);
    Money(i64::try_from(nanos).unwrap_or(if nanos < 0 { i64::MIN } else { i64::MAX }))
}

/// Dollars as a JSON number: no exponent, no trailing zeros, all nine places kept.
impl fmt::Display for Money {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        // In pieces that are texts as they are: this runs several times for every answer.
        let (dollars, nanos) = (self.0.unsigned_abs() / NANOS as u64, self.0.unsigned_abs() % NANOS as u64);
        if self.0 < 0 {
            out.write_str("-")?;
        }
        let mut digits = itoa::Buffer::new();
        if nanos == 0 {
            return out.write_str(digits.format(dollars));
        }
        if dollars == 0 {
            out.write_str("0.")?;
        } else {
            out.write_str(digits.format(dollars))?;
            out.write_str(".")?;
        }
        // A digit before them keeps the zeros that they begin with.
        let places = digits.format(NANOS as u64 + nanos);
        let end = places.bytes().rposition(|digit| digit != b'0').map_or(0, |last| last + 1);
        out.write_str(&places[1..end])
    }
}

fn parse_nanos(text: &str) -> Result<i64, InvalidAmount> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let (mantissa, exponent) = match digits.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().map_err(|_| InvalidAmount::NotDecimal)?),
        None => (digits, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits_only = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !digits_only(whole) || !digits_only(fraction) || mantissa.ends_with('.') {
        return Err(InvalidAmount::NotDecimal);
    }
    let mut significant = format!("{whole}{fraction}");
    // Place of the decimal point, in nano-dollars, counted from the left of the digits.
    let point = i64::from(exponent) + whole.len() as i64 + 9;
    let leading = significant.len() - significant.trim_start_matches('0').len();
    significant.drain(..leading);
    let point = point - leading as i64;
    if significant.is_empty() {
        return Ok(0);
    }
    // Before anything is rounded: what is below nothing is not nothing, however little it is.
    if negative {
        return Err(InvalidAmount::Negative);
    }
    if point > 19 {
        return Err(InvalidAmount::TooLarge);
    }
    let kept: String =
        (0..point.max(0) as usize).map(|place| significant.as_bytes().get(place).map_or('0', |b| *b as char)).collect();
    let next = usize::try_from(point).ok().and_then(|place| significant.as_bytes().get(place)).copied().unwrap_or(b'0');
    let nanos = kept.parse::<u64>().unwrap_or(0).saturating_add(u64::from(next >= b'5'));
    i64::try_from(nanos).ok().filter(|nanos| *nanos <= LARGEST_DOLLARS * NANOS).ok_or(InvalidAmount::TooLarge)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn led_1_decimals_are_read_from_their_text() {
        let cases = [
            ("0", 0),
            ("1", 1_000_000_000),
            ("0.1", 100_000_000),
            ("0.30000000000000004", 300_000_000),
            ("0.0000000005", 1),
            ("0.00000000049", 0),
            ("1.5e-3", 1_500_000),
            ("25e2", 2_500_000_000_000),
            ("-0", 0),
            ("-0.0e5", 0),
            ("1e-20", 0),
            ("1000000000", 1_000_000_000_000_000_000),
        ];
        for (text, nanos) in cases {
            assert_eq!(Money::parse(text), Ok(Money(nanos)), "{text}");
        }
    }

    #[test]
    fn led_1_what_is_no_amount_is_refused() {
        use InvalidAmount::*;
        let cases = [
            ("", NotDecimal),
            ("abc", NotDecimal),
            ("1.", NotDecimal),
            (".5", NotDecimal),
            ("NaN", NotDecimal),
            ("Infinity", NotDecimal),
            ("-1", Negative),
            ("-0.0000000001", Negative),
            ("-1e-20", Negative),
            ("-1e999", Negative),
            ("1000000000.000000001", TooLarge),
            ("1e999", TooLarge),
            ("1e10", TooLarge),
        ];
        for (text, error) in cases {
            assert_eq!(Money::parse(text), Err(error), "{text}");
        }
    }

    #[test]
    fn a_factor_is_exact_or_refused() {
        use InvalidFactor::*;
        let read = |text: &str| Factor::parse(text).map(Factor::millionths);
        let good = [("1.1", 1_100_000), ("0.5", 500_000), ("2", 2_000_000), ("0", 0), ("1e3", 1_000_000_000)];
        for (text, millionths) in good {
            assert_eq!(read(text), Ok(millionths), "{text}");
        }
        let bad =
            [("0.1234567", TooFine), ("-1", Negative), ("1000.1", TooLarge), ("1e99", TooLarge), ("x", NotDecimal)];
        for (text, error) in bad {
            assert_eq!(read(text), Err(error), "{text}");
        }
        assert_eq!((Factor::parse("1.10").unwrap().to_string(), Factor::ONE.to_string()), ("1.1".into(), "1".into()));
        assert_eq!(Factor::parse("0.25").unwrap().rest(), Factor::new(750_000));
    }

    #[test]
    fn an_amount_is_written_without_loss() {
        assert_eq!(Money(177_000).to_string(), "0.000177");
        assert_eq!(Money(1).to_string(), "0.000000001");
        assert_eq!(Money(-1_500_000_000).to_string(), "-1.5");
        assert_eq!(Money(0).to_string(), "0");
    }

    #[test]
    fn led_1_a_cost_is_rounded_half_up_once() {
        // 14 tokens at 3 dollars and 9 tokens at 15 dollars per million: 42 + 135 micro-dollars.
        let (input, output) = (Price::parse("3").unwrap(), Price::parse("15").unwrap());
        assert_eq!(round(input.times(14) + output.times(9)).to_string(), "0.000177");
        assert_eq!(round(499_999), Money(0));
        assert_eq!(round(500_000), Money(1));
    }

    proptest! {
        #[test]
        fn an_amount_is_shown_as_a_plain_decimal(nanos in prop_oneof![any::<i64>(), -3_000_000_000..3_000_000_000_i64]) {
            let (dollars, rest) = (nanos.unsigned_abs() / 1_000_000_000, nanos.unsigned_abs() % 1_000_000_000);
            let long = format!("{}{dollars}.{rest:09}", if nanos < 0 { "-" } else { "" });
            let short = long.trim_end_matches('0').trim_end_matches('.');
            prop_assert_eq!(Money(nanos).to_string(), short);
        }

        #[test]
        fn text_and_amount_round_trip(nanos in 0_i64..=1_000_000_000_000_000_000) {
            prop_assert_eq!(Money::parse(&Money(nanos).to_string()), Ok(Money(nanos)));
        }

        #[test]
        fn no_text_panics(text in "[-0-9.eE+]{0,24}") {
            let _ = Money::parse(&text);
        }
    }
}
