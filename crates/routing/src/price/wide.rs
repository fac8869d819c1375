//! Sums that fit whatever is counted: 256 bits, because a price, a count and three factors are multiplied before the one
//! rounding.

use std::cmp::Ordering;

/// A number from 0 upwards, the lowest 64 bits first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(super) struct Wide([u64; 4]);

impl Wide {
    pub fn add(&mut self, other: u128) {
        self.add_wide(Self([other as u64, (other >> 64) as u64, 0, 0]));
    }

    pub fn add_wide(&mut self, other: Self) {
        let mut carry = 0_u128;
        for (digit, other) in self.0.iter_mut().zip(other.0) {
            carry += u128::from(*digit) + u128::from(other);
            *digit = carry as u64;
            carry >>= 64;
        }
        debug_assert_eq!(carry, 0, "the largest prices, counts and factors stay below 256 bits");
    }

    /// The difference, none when it is below nothing.
    pub fn less(self, other: Self) -> Option<Self> {
        if self.compare(&other) == Ordering::Less {
            return None;
        }
        let (mut rest, mut borrow) = ([0; 4], false);
        for (place, digit) in rest.iter_mut().enumerate() {
            let (first, one) = self.0[place].overflowing_sub(other.0[place]);
            let (second, two) = first.overflowing_sub(u64::from(borrow));
            (*digit, borrow) = (second, one || two);
        }
        Some(Self(rest))
    }

    fn compare(&self, other: &Self) -> Ordering {
        self.0.iter().rev().cmp(other.0.iter().rev())
    }

    pub fn times(mut self, factor: u64) -> Self {
        let mut carry = 0_u128;
        for digit in &mut self.0 {
            carry += u128::from(*digit) * u128::from(factor);
            *digit = carry as u64;
            carry >>= 64;
        }
        debug_assert_eq!(carry, 0, "the largest prices, counts and factors stay below 256 bits");
        self
    }

    /// What is left out by the division is lost, so it comes last; `divisor` is not 0.
    pub fn over(mut self, divisor: u64) -> Self {
        let mut rest = 0_u128;
        for digit in self.0.iter_mut().rev() {
            rest = (rest << 64) | u128::from(*digit);
            *digit = (rest / u128::from(divisor)) as u64;
            rest %= u128::from(divisor);
        }
        self
    }

    /// As nano-dollars, at the edge of what an amount can be when it does not fit.
    pub fn to_i64(self) -> i64 {
        match self.0 {
            [low, 0, 0, 0] => i64::try_from(low).unwrap_or(i64::MAX),
            _ => i64::MAX,
        }
    }

    pub fn to_u128(self) -> Option<u128> {
        match self.0 {
            [low, high, 0, 0] => Some(u128::from(high) << 64 | u128::from(low)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_counts_like_smaller_numbers(one in any::<u64>(), two in any::<u64>(), more in 0..u128::MAX >> 1, by in 1..u64::MAX) {
            let mut wide = Wide::default();
            wide.add(u128::from(one) * u128::from(two));
            prop_assert_eq!(wide, Wide([one, 0, 0, 0]).times(two));
            prop_assert_eq!(wide.over(by).to_u128(), Some(u128::from(one) * u128::from(two) / u128::from(by)));
            prop_assert_eq!(wide.times(by).times(by).over(by).over(by), wide);
            let mut sum = wide;
            sum.add(more);
            prop_assert_eq!(sum.less(wide).and_then(Wide::to_u128), Some(more));
            prop_assert_eq!(wide.less(sum), (more == 0).then(Wide::default));
        }
    }
}
