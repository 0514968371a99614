//! DynamoDB's number: up to 38 significant decimal digits, magnitudes 1E-130 to 9.99…E+125, and 0.
//!
//! Arithmetic is exact and never rounds. A value that is not representable is an error with
//! DynamoDB's message. Source: AWS, "Data types: Number" and "Supported data types and naming
//! rules". `docs/formats/keys.md` shows the order-preserving encoding.

mod text;

use std::cmp::Ordering;
use std::fmt;

use thiserror::Error;

use crate::limits::{NUMBER_DIGITS_MAX, NUMBER_EXPONENT_MAX, NUMBER_EXPONENT_MIN};

/// A number in lowest terms: `sign * coefficient * 10^exponent`, where the coefficient has at most
/// 38 digits and does not end in 0 (zero is coefficient 0, exponent 0, not negative).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Number {
    negative: bool,
    exponent: i16,
    coefficient: u128,
}

/// The reason why a string is not a number, or why a result is not representable. The messages are
/// DynamoDB's own.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NumberError {
    /// The string is not in decimal notation.
    #[error("The parameter cannot be converted to a numeric value: {0}")]
    NotNumeric(String),
    /// The string is empty.
    #[error("The parameter cannot be converted to a numeric value: ")]
    Empty,
    /// The magnitude is above 9.99…E+125.
    #[error(
        "Number overflow. Attempting to store a number with magnitude larger than supported range"
    )]
    Overflow,
    /// The magnitude is below 1E-130, and the number is not zero.
    #[error(
        "Number underflow. Attempting to store a number with magnitude smaller than supported range"
    )]
    Underflow,
    /// The number has more than 38 significant digits.
    #[error("Attempting to store more than 38 significant digits in a Number")]
    TooPrecise,
}

/// The first bytes of ordered encodings, in the order of the values: negative numbers first.
const CLASS_NEGATIVE: u8 = 0;
const CLASS_ZERO: u8 = 1;
const CLASS_POSITIVE: u8 = 2;
/// The bias of the decimal exponent of the first digit, so that it is stored without a sign.
const EXPONENT_BIAS: i32 = 1000;

impl Number {
    /// Zero.
    pub const ZERO: Self = Self { negative: false, exponent: 0, coefficient: 0 };

    /// Creates a number in lowest terms, and checks the range.
    fn normalized(negative: bool, coefficient: u128, exponent: i32) -> Result<Self, NumberError> {
        if coefficient == 0 {
            return Ok(Self::ZERO);
        }
        let (mut coefficient, mut exponent) = (coefficient, exponent);
        while let (shorter, 0) = divide(coefficient, 10) {
            coefficient = shorter;
            exponent += 1;
        }
        let digits = digit_count(coefficient);
        if digits > NUMBER_DIGITS_MAX {
            return Err(NumberError::TooPrecise);
        }
        check_exponent(exponent + i32::try_from(digits).unwrap_or(i32::MAX) - 1)?;
        let exponent = i16::try_from(exponent).map_err(|_| NumberError::Overflow)?;
        Ok(Self { negative, exponent, coefficient })
    }

    /// Returns the decimal exponent of the first digit: 2 for 123, -3 for 0.00123.
    fn first_exponent(&self) -> i32 {
        i32::from(self.exponent) + i32::try_from(digit_count(self.coefficient)).unwrap_or(0) - 1
    }

    /// Returns whether the number is 0.
    #[must_use]
    pub fn is_zero(&self) -> bool {
        self.coefficient == 0
    }

    /// Returns whether the number is below 0.
    #[must_use]
    pub fn is_negative(&self) -> bool {
        self.negative
    }

    /// Returns the value as an integer, if the value is an integer and fits into the type.
    #[must_use]
    pub fn to_i128(&self) -> Option<i128> {
        let exponent = u32::try_from(self.exponent).ok()?;
        let magnitude = self.coefficient.checked_mul(10u128.checked_pow(exponent)?)?;
        let magnitude = i128::try_from(magnitude).ok()?;
        Some(if self.negative { -magnitude } else { magnitude })
    }

    /// Returns the value as an unsigned 64-bit integer, if the value is an integer and fits into
    /// the type.
    #[must_use]
    pub fn to_u64(&self) -> Option<u64> {
        self.to_i128().and_then(|value| u64::try_from(value).ok())
    }

    /// Returns the value times `10^scale` as an integer if the result is exact and fits. The result
    /// is the unscaled value of a `decimal(38, scale)`.
    #[must_use]
    pub fn to_scaled_i128(&self, scale: u32) -> Option<i128> {
        let exponent = i32::from(self.exponent) + i32::try_from(scale).ok()?;
        let exponent = u32::try_from(exponent).ok()?;
        if self.is_zero() {
            return Some(0);
        }
        let magnitude = self.coefficient.checked_mul(10u128.checked_pow(exponent)?)?;
        let magnitude = i128::try_from(magnitude).ok()?;
        Some(if self.negative { -magnitude } else { magnitude })
    }

    /// Returns the size that DynamoDB counts for the number in an item, in bytes: one byte, one
    /// byte for every two significant digits on each side of the decimal point, and one byte for a
    /// minus sign. AWS's page ("DynamoDB item sizes and formats") does not distinguish the two
    /// sides, but tests with items at the limit of 400 KB show that DynamoDB does: `15` has two
    /// bytes and `1.5` has three.
    #[must_use]
    pub fn size(&self) -> usize {
        if self.is_zero() {
            return 1;
        }
        let digits = digit_count(self.coefficient);
        let places = usize::from(self.exponent.min(0).unsigned_abs());
        let halves = match digits.checked_sub(places) {
            // Zeros between the decimal point and the first significant digit do not count.
            None => digits.div_ceil(2),
            Some(whole) => whole.div_ceil(2) + places.div_ceil(2),
        };
        halves + 1 + usize::from(self.negative)
    }

    /// Returns the number with the opposite sign.
    #[must_use]
    pub fn negated(self) -> Self {
        Self { negative: !self.negative && !self.is_zero(), ..self }
    }

    /// Returns the exact sum.
    ///
    /// # Errors
    /// When the sum requires more than 38 digits or is out of range.
    pub fn checked_add(self, other: Self) -> Result<Self, NumberError> {
        if self.is_zero() {
            return Ok(other);
        }
        if other.is_zero() {
            return Ok(self);
        }
        let (high, low) =
            if self.exponent >= other.exponent { (self, other) } else { (other, self) };
        if self.negative == other.negative && self.sum_overflows(&other) {
            return Err(NumberError::Overflow);
        }
        // If the aligned operand has more than 38 digits, the sum has too: the operand's last
        // digits are zeros, and the last digit of the other operand is not zero.
        let shift =
            u32::try_from(i32::from(high.exponent) - i32::from(low.exponent)).unwrap_or(u32::MAX);
        let aligned = 10u128
            .checked_pow(shift)
            .and_then(|power| high.coefficient.checked_mul(power))
            .ok_or(NumberError::TooPrecise)?;
        let exponent = i32::from(low.exponent);
        if high.negative == low.negative {
            let sum = aligned.checked_add(low.coefficient).ok_or(NumberError::TooPrecise)?;
            Self::normalized(high.negative, sum, exponent)
        } else if aligned >= low.coefficient {
            Self::normalized(high.negative, aligned - low.coefficient, exponent)
        } else {
            Self::normalized(low.negative, low.coefficient - aligned, exponent)
        }
    }

    /// Returns whether the sum of two numbers with the same sign is 1E+126 or more. DynamoDB checks
    /// the magnitude before the precision, so the digits of the sum do not matter.
    fn sum_overflows(&self, other: &Self) -> bool {
        let order = self.compare_magnitude(other);
        let (high, low) = if order.is_ge() { (self, other) } else { (other, self) };
        if high.first_exponent() < NUMBER_EXPONENT_MAX {
            return false;
        }
        // Both numbers become multiples of 1E+88, so that 1E+126 is 10^38. The truncated digits
        // cannot cause a carry.
        let scaled = |n: &Self| {
            let missing = NUMBER_DIGITS_MAX.saturating_sub(digit_count(n.coefficient));
            let digits = n.coefficient * 10u128.pow(u32::try_from(missing).unwrap_or(0));
            let lower = u32::try_from(NUMBER_EXPONENT_MAX - n.first_exponent()).unwrap_or(u32::MAX);
            10u128.checked_pow(lower).map_or(0, |power| digits / power)
        };
        scaled(high) + scaled(low) >= 10u128.pow(38)
    }

    /// Returns the exact difference.
    ///
    /// # Errors
    /// When the difference requires more than 38 digits or is out of range.
    pub fn checked_sub(self, other: Self) -> Result<Self, NumberError> {
        self.checked_add(other.negated())
    }

    fn compare_magnitude(&self, other: &Self) -> Ordering {
        self.first_exponent().cmp(&other.first_exponent()).then_with(|| {
            let scale = |n: &Self| {
                let missing = NUMBER_DIGITS_MAX.saturating_sub(digit_count(n.coefficient));
                n.coefficient * 10u128.pow(u32::try_from(missing).unwrap_or(0))
            };
            scale(self).cmp(&scale(other))
        })
    }

    /// The maximum number of bytes that [`Number::encode_ordered`] appends: a class, an exponent,
    /// pairs of digits and a terminator.
    pub const ORDERED_BYTES_MAX: usize = 4 + NUMBER_DIGITS_MAX / 2;

    /// Appends bytes whose unsigned order is the order of the numbers. No encoding is a prefix of
    /// another encoding.
    pub fn encode_ordered(&self, out: &mut Vec<u8>) {
        if self.is_zero() {
            out.push(CLASS_ZERO);
            return;
        }
        let start = out.len() + 1;
        out.push(if self.negative { CLASS_NEGATIVE } else { CLASS_POSITIVE });
        let exponent = u16::try_from(self.first_exponent() + EXPONENT_BIAS).unwrap_or(0);
        out.extend_from_slice(&exponent.to_be_bytes());
        // The digits are left-aligned, so that comparing pairs of digits gives the same order as
        // comparing digits. The last pair is never 0.
        let digits = digit_count(self.coefficient);
        let mut rest = if digits % 2 == 1 { self.coefficient * 10 } else { self.coefficient };
        let pairs = out.len();
        out.resize(pairs + digits.div_ceil(2), 0);
        for place in out.iter_mut().skip(pairs).rev() {
            let pair;
            (rest, pair) = divide(rest, 100);
            *place = pair + 1;
        }
        out.push(0);
        if self.negative {
            out.iter_mut().skip(start).for_each(|byte| *byte = !*byte);
        }
    }

    /// Returns the length of the [`Number::encode_ordered`] encoding at the start of `bytes`,
    /// without decoding it. The bytes are not validated, so damaged bytes may also yield a length.
    pub(crate) fn ordered_length(bytes: &[u8]) -> Option<usize> {
        let end = match *bytes.first()? {
            CLASS_ZERO => return Some(1),
            CLASS_NEGATIVE => u8::MAX,
            CLASS_POSITIVE => 0,
            _ => return None,
        };
        let pairs = bytes.get(3..)?.iter().take(NUMBER_DIGITS_MAX / 2 + 1);
        pairs.into_iter().position(|byte| *byte == end).map(|pairs| pairs + 4)
    }

    /// Decodes the [`Number::encode_ordered`] encoding at the start of `bytes`. Returns the number,
    /// and the length of its encoding.
    #[must_use]
    pub fn decode_ordered(bytes: &[u8]) -> Option<(Self, usize)> {
        let (class, rest) = bytes.split_first()?;
        let negative = match *class {
            CLASS_ZERO => return Some((Self::ZERO, 1)),
            CLASS_NEGATIVE => true,
            CLASS_POSITIVE => false,
            _ => return None,
        };
        let plain = |byte: &u8| if negative { !*byte } else { *byte };
        let [high, low] = [plain(rest.first()?), plain(rest.get(1)?)];
        let first = i32::from(u16::from_be_bytes([high, low])) - EXPONENT_BIAS;
        let mut coefficient: u128 = 0;
        let mut pairs = 0;
        loop {
            let byte = plain(rest.get(2 + pairs)?);
            if byte == 0 {
                break;
            }
            if byte > 100 || pairs >= NUMBER_DIGITS_MAX / 2 {
                return None;
            }
            coefficient = coefficient * 100 + u128::from(byte - 1);
            pairs += 1;
        }
        // The digits are left-aligned, so the first digit is not 0.
        let digits = i32::try_from(pairs * 2).ok()?;
        let number = Self::normalized(negative, coefficient, first - digits + 1).ok()?;
        Some((number, pairs + 4))
    }
}

/// Checks that an exponent is in range: the decimal exponent of a number's first digit, or the
/// written exponent of a zero.
fn check_exponent(first: i32) -> Result<(), NumberError> {
    if first > NUMBER_EXPONENT_MAX {
        return Err(NumberError::Overflow);
    }
    if first < NUMBER_EXPONENT_MIN {
        return Err(NumberError::Underflow);
    }
    Ok(())
}

/// Returns the quotient and the remainder. Nearly all numbers fit into 64 bits, and a single CPU
/// instruction divides them.
fn divide(value: u128, divisor: u8) -> (u128, u8) {
    let (quotient, remainder) = match u64::try_from(value) {
        Ok(small) => {
            let divisor = u64::from(divisor);
            (u128::from(small / divisor), u128::from(small % divisor))
        }
        Err(_) => (value / u128::from(divisor), value % u128::from(divisor)),
    };
    (quotient, u8::try_from(remainder).unwrap_or(0))
}

/// Returns the number of decimal digits of `value`; 1 for 0.
fn digit_count(value: u128) -> usize {
    let log = match u64::try_from(value) {
        Ok(small) => small.checked_ilog10(),
        Err(_) => value.checked_ilog10(),
    };
    log.map_or(1, |log| log as usize + 1)
}

impl fmt::Debug for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Ord for Number {
    fn cmp(&self, other: &Self) -> Ordering {
        let sign = |n: &Self| i8::from(!n.is_zero()) * if n.negative { -1 } else { 1 };
        sign(self).cmp(&sign(other)).then_with(|| match sign(self) {
            0 => Ordering::Equal,
            1 => self.compare_magnitude(other),
            _ => other.compare_magnitude(self),
        })
    }
}

impl PartialOrd for Number {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl From<u64> for Number {
    fn from(value: u64) -> Self {
        Self::from(i128::from(value))
    }
}

impl From<i64> for Number {
    fn from(value: i64) -> Self {
        Self::from(i128::from(value))
    }
}

impl From<i128> for Number {
    /// Converts exactly if the magnitude is below 10^38. A larger `i128` keeps only its first 38
    /// significant digits.
    fn from(value: i128) -> Self {
        let mut magnitude = value.unsigned_abs();
        let mut exponent = 0;
        while digit_count(magnitude) > NUMBER_DIGITS_MAX {
            magnitude /= 10;
            exponent += 1;
        }
        Self::normalized(value < 0, magnitude, exponent).unwrap_or(Self::ZERO)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn number(text: &str) -> Number {
        text.parse().unwrap()
    }

    /// Goal: sizes equal those of DynamoDB, measured with items at the limit of 400 KB.
    #[test]
    fn sizes_equal_dynamodbs() {
        for (text, size) in [
            ("0", 1),
            ("-0", 1),
            ("1", 2),
            ("12", 2),
            ("123", 3),
            ("1234", 3),
            ("12345678901234567890123456789012345678", 20),
            ("0042", 2),
            ("100", 2),
            ("1010", 3),
            ("0.0000001", 2),
            ("1E125", 2),
            ("1E-100", 2),
            ("15", 2),
            ("1.5", 3),
            ("1.200", 3),
            ("1.234", 4),
            ("3.14159", 5),
            ("123456", 4),
            ("100.5", 4),
            ("0.15", 2),
            ("-42", 3),
            ("-1.5", 4),
        ] {
            assert_eq!(number(text).size(), size, "{text}");
        }
    }

    #[test]
    fn sums_are_exact_or_refused() {
        for (a, b, sum) in [
            ("1", "2", "3"),
            ("0.1", "0.2", "0.3"),
            ("-5", "5", "0"),
            ("1e38", "-1", "99999999999999999999999999999999999999"),
            (
                "99999999999999999999999999999999999999",
                "1",
                "100000000000000000000000000000000000000",
            ),
            ("1e125", "0", "1e125"),
            ("-1.5", "1", "-0.5"),
            ("1", "-1.5", "-0.5"),
        ] {
            assert_eq!(number(a).checked_add(number(b)), Ok(number(sum)), "{a} + {b}");
        }
        for (a, b, error) in [
            ("1e38", "1", NumberError::TooPrecise),
            ("9e38", "-1", NumberError::TooPrecise),
            ("1e125", "1e-130", NumberError::TooPrecise),
            ("9e125", "1e125", NumberError::Overflow),
            (
                "9.9999999999999999999999999999999999999e125",
                "9.9999999999999999999999999999999999999e125",
                NumberError::Overflow,
            ),
            ("-9e125", "-1.5e125", NumberError::Overflow),
            ("8e125", "1.0000000000000000000000000000000000001e100", NumberError::TooPrecise),
        ] {
            assert_eq!(number(a).checked_add(number(b)), Err(error), "{a} + {b}");
        }
    }

    fn any_number() -> impl Strategy<Value = Number> {
        let coefficient = prop_oneof![0u128..1000, 0u128..10u128.pow(38)];
        (any::<bool>(), coefficient, -130i32..88).prop_filter_map(
            "in range",
            |(negative, coefficient, exponent)| {
                Number::normalized(negative, coefficient, exponent).ok()
            },
        )
    }

    proptest! {
        #[test]
        fn text_round_trips(n in any_number()) {
            prop_assert_eq!(n.to_string().parse::<Number>(), Ok(n));
        }

        #[test]
        fn ordered_bytes_round_trip_and_keep_order(a in any_number(), b in any_number()) {
            let (mut left, mut right) = (Vec::new(), Vec::new());
            a.encode_ordered(&mut left);
            b.encode_ordered(&mut right);
            prop_assert_eq!(Number::decode_ordered(&left), Some((a, left.len())));
            prop_assert!(left.len() <= Number::ORDERED_BYTES_MAX);
            let behind: Vec<u8> = left.iter().chain(&right).copied().collect();
            prop_assert_eq!(Number::ordered_length(&behind), Some(left.len()));
            for end in 0..left.len() {
                prop_assert_eq!(Number::ordered_length(&left[..end]), None);
            }
            prop_assert_eq!(left.cmp(&right), a.cmp(&b));
        }

        #[test]
        fn decoded_numbers_have_their_length(mut bytes in prop::collection::vec(any::<u8>(), 0..30), class in 0_u8..4) {
            if let Some(first) = bytes.first_mut() {
                *first = [CLASS_ZERO, CLASS_NEGATIVE, CLASS_POSITIVE, *first][usize::from(class)];
            }
            if let Some((_, length)) = Number::decode_ordered(&bytes) {
                prop_assert_eq!(Number::ordered_length(&bytes), Some(length));
            }
        }

        #[test]
        fn order_agrees_with_integers(a in any::<i64>(), b in any::<i64>()) {
            prop_assert_eq!(Number::from(a).cmp(&Number::from(b)), a.cmp(&b));
            prop_assert_eq!(Number::from(a).to_i128(), Some(a.into()));
            let sum = i128::from(a) + i128::from(b);
            prop_assert_eq!(Number::from(a).checked_add(Number::from(b)), Ok(Number::from(sum)));
        }

        #[test]
        fn addition_commutes_and_subtraction_undoes(a in any_number(), b in any_number()) {
            prop_assert_eq!(a.checked_add(b), b.checked_add(a));
            if let Ok(sum) = a.checked_add(b) {
                prop_assert_eq!(sum.checked_sub(b), Ok(a));
            }
        }

        #[test]
        fn any_text_is_handled(text in "[-+0-9.eE ]{0,60}") {
            let _ = text.parse::<Number>();
        }
    }
}
