//! Parsing and formatting of numbers in decimal notation, with or without an exponent.
//!
//! This module checks the notation; `number` checks the range.

use std::fmt;
use std::str::FromStr;

use super::{Number, NumberError, check_exponent};
use crate::limits::NUMBER_DIGITS_MAX;

/// The maximum length of a number in bytes. Longer strings are rejected without parsing. Even a
/// number with 38 digits after leading zeros (0.000…1) takes only 170 bytes.
const TEXT_BYTES_MAX: usize = 1024;
/// The maximum number of characters of an invalid string in an error message.
const TEXT_SHOWN_MAX: usize = 64;

impl FromStr for Number {
    type Err = NumberError;

    fn from_str(text: &str) -> Result<Self, NumberError> {
        if text.is_empty() {
            return Err(NumberError::Empty);
        }
        let not_numeric = || NumberError::NotNumeric(text.chars().take(TEXT_SHOWN_MAX).collect());
        if text.len() > TEXT_BYTES_MAX {
            return Err(not_numeric());
        }
        let (negative, unsigned) = match text.as_bytes().first() {
            Some(b'-') => (true, text.get(1..).unwrap_or("")),
            Some(b'+') => (false, text.get(1..).unwrap_or("")),
            _ => (false, text),
        };
        let (mantissa, exponent) = match unsigned.find(['e', 'E']) {
            Some(at) => {
                let digits = unsigned.get(at + 1..).unwrap_or("");
                let plain = digits.strip_prefix(['+', '-']).unwrap_or(digits);
                if plain.is_empty() || !plain.bytes().all(|byte| byte.is_ascii_digit()) {
                    return Err(not_numeric());
                }
                // With an exponent far out of range, the number is out of range for every mantissa.
                // If the exponent does not fit into 64 bits, DynamoDB rejects the string as not
                // numeric.
                let value = digits.parse::<i64>().map_err(|_| not_numeric())?;
                let value = i32::try_from(value.clamp(-1_000_000, 1_000_000)).unwrap_or(0);
                (unsigned.get(..at).unwrap_or(""), value)
            }
            None => (unsigned, 0),
        };
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        if (whole.is_empty() && fraction.is_empty())
            || !whole.bytes().chain(fraction.bytes()).all(|byte| byte.is_ascii_digit())
        {
            return Err(not_numeric());
        }
        let written = exponent;
        let exponent = exponent - i32::try_from(fraction.len()).unwrap_or(i32::MAX);
        let number = parse_digits(negative, whole.bytes().chain(fraction.bytes()), exponent)?;
        if number.is_zero() {
            check_exponent(written)?;
        }
        Ok(number)
    }
}

impl NumberError {
    /// Converts DynamoDB's current error for `text` to its error until mid-2026. The errors differ
    /// because DynamoDB's parser until mid-2026 stored the exponent and the number of decimal
    /// places in 32 bits each, and their difference wrapped around.
    #[must_use]
    pub fn as_before(self, text: &str) -> Self {
        if !matches!(self, Self::Overflow | Self::Underflow) {
            return self;
        }
        let (mantissa, exponent) = match text.find(['e', 'E']) {
            Some(at) => (text.get(..at).unwrap_or(""), text.get(at + 1..).unwrap_or("")),
            None => (text, "0"),
        };
        let fraction = mantissa.split_once('.').map_or(0, |(_, fraction)| fraction.len());
        let scale = exponent
            .parse::<i32>()
            .ok()
            .and_then(|exponent| i64::try_from(fraction).ok()?.checked_sub(exponent.into()))
            .filter(|scale| i32::try_from(*scale).is_ok());
        let Some(scale) = scale else {
            return Self::NotNumeric(text.chars().take(TEXT_SHOWN_MAX).collect());
        };
        let digits = mantissa.bytes().filter(u8::is_ascii_digit);
        let precision = digits.skip_while(|digit| *digit == b'0').count().max(1);
        let magnitude = i64::try_from(precision).unwrap_or(i64::MAX).saturating_sub(scale);
        if magnitude > i64::from(i32::MAX) { Self::Underflow } else { self }
    }
}

/// Collects the digits of a number. Trailing zeros only change the exponent, so they do not count
/// towards the limit of 38 digits.
fn parse_digits(
    negative: bool,
    digits: impl Iterator<Item = u8>,
    exponent: i32,
) -> Result<Number, NumberError> {
    let mut coefficient: u128 = 0;
    let mut pending_zeros: u32 = 0;
    let mut significant: u32 = 0;
    for digit in digits {
        if digit == b'0' {
            pending_zeros += u32::from(significant > 0);
            continue;
        }
        significant += pending_zeros + 1;
        if significant as usize > NUMBER_DIGITS_MAX {
            return Err(NumberError::TooPrecise);
        }
        coefficient = coefficient * 10u128.pow(pending_zeros + 1) + u128::from(digit - b'0');
        pending_zeros = 0;
    }
    let exponent = exponent.saturating_add(i32::try_from(pending_zeros).unwrap_or(i32::MAX));
    Number::normalized(negative, coefficient, exponent)
}

impl Number {
    /// Appends the number in plain decimal notation without an exponent, as DynamoDB returns it:
    /// `1E+3` becomes `1000`.
    pub fn write(&self, out: &mut String) {
        if self.negative {
            out.push('-');
        }
        let mut room = [0; DIGITS_OF_64_BITS];
        let long;
        let digits = match u64::try_from(self.coefficient) {
            Ok(short) => digits_of(short, &mut room),
            Err(_) => {
                long = self.coefficient.to_string();
                long.as_str()
            }
        };
        match usize::try_from(self.exponent) {
            Ok(zeros) => {
                out.push_str(digits);
                out.extend(std::iter::repeat_n('0', zeros));
            }
            Err(_) => {
                let places = usize::from(self.exponent.unsigned_abs());
                match digits.len().checked_sub(places).filter(|whole| *whole > 0) {
                    Some(whole) => {
                        let (whole, fraction) = digits.split_at(whole);
                        out.push_str(whole);
                        out.push('.');
                        out.push_str(fraction);
                    }
                    None => {
                        out.push_str("0.");
                        out.extend(std::iter::repeat_n('0', places - digits.len()));
                        out.push_str(digits);
                    }
                }
            }
        }
    }
}

/// The maximum number of decimal digits of a 64-bit number.
const DIGITS_OF_64_BITS: usize = 20;

/// Returns the decimal digits of a number. This function is several times as fast as the standard
/// library's formatting. Numbers are written often, and most of them are short.
fn digits_of(mut number: u64, room: &mut [u8; DIGITS_OF_64_BITS]) -> &str {
    let mut count = 0;
    for place in room.iter_mut().rev() {
        *place = b'0' + u8::try_from(number % 10).unwrap_or(0);
        (number, count) = (number / 10, count + 1);
        if number == 0 {
            break;
        }
    }
    let digits = room.get(DIGITS_OF_64_BITS - count..).unwrap_or_default();
    std::str::from_utf8(digits).unwrap_or_default()
}

impl fmt::Display for Number {
    /// Writes the same string as [`Number::write`].
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        self.write(&mut text);
        f.write_str(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(text: &str) -> Number {
        text.parse().unwrap()
    }

    #[test]
    fn number_errors_have_an_older_wording() {
        let not_numeric = |text: &str| NumberError::NotNumeric(text.to_owned());
        for (text, before) in [
            ("1e126", NumberError::Overflow),
            ("-1E126", NumberError::Overflow),
            ("1e-131", NumberError::Underflow),
            ("1e2147483646", NumberError::Overflow),
            ("1e2147483647", NumberError::Underflow),
            ("0.1e2147483647", NumberError::Overflow),
            ("1e2147483648", not_numeric("1e2147483648")),
            ("-1e99999999999", not_numeric("-1e99999999999")),
            ("1e-2147483648", not_numeric("1e-2147483648")),
            ("1.5e-2147483647", not_numeric("1.5e-2147483647")),
            ("abc", not_numeric("abc")),
            ("", NumberError::Empty),
        ] {
            let today = text.parse::<Number>().unwrap_err();
            assert_eq!(today.as_before(text), before, "{text}");
        }
    }

    #[test]
    fn texts_are_normalised() {
        for (text, canonical) in [
            ("0", "0"),
            ("-0", "0"),
            ("0.000", "0"),
            ("1.10", "1.1"),
            ("007", "7"),
            ("+5", "5"),
            ("1e3", "1000"),
            ("1E-3", "0.001"),
            (".5", "0.5"),
            ("5.", "5"),
            ("-12.340", "-12.34"),
            ("12345678901234567890123456789012345678", "12345678901234567890123456789012345678"),
            (
                "1234567890123456789012345678901234567800",
                "1234567890123456789012345678901234567800",
            ),
            ("18446744073709551615", "18446744073709551615"),
            ("-18446744073709551616", "-18446744073709551616"),
            ("1844674407370955161.6", "1844674407370955161.6"),
            ("0.18446744073709551615", "0.18446744073709551615"),
            ("0.018446744073709551617", "0.018446744073709551617"),
            ("-10e2", "-1000"),
            ("0e125", "0"),
            ("0e-130", "0"),
        ] {
            assert_eq!(number(text).to_string(), canonical, "{text}");
        }
        assert_eq!(number("1e125").to_string().len(), 126);
        assert_eq!(number("1e-130").to_string().len(), 132);
        assert_eq!(number("9.9999999999999999999999999999999999999E+125").to_string().len(), 126);
    }

    #[test]
    fn invalid_texts_are_refused() {
        let not = |text: &str| NumberError::NotNumeric(text.to_owned());
        for (text, error) in [
            ("", NumberError::Empty),
            ("abc", not("abc")),
            ("1e", not("1e")),
            (".", not(".")),
            ("1 ", not("1 ")),
            ("--1", not("--1")),
            ("NaN", not("NaN")),
            ("Infinity", not("Infinity")),
            ("1_000", not("1_000")),
            ("0x10", not("0x10")),
            ("1e+", not("1e+")),
            ("1e--1", not("1e--1")),
            ("1e126", NumberError::Overflow),
            ("-1e126", NumberError::Overflow),
            ("1e99999999999", NumberError::Overflow),
            ("1e-131", NumberError::Underflow),
            ("1e-99999999999", NumberError::Underflow),
            ("1e2147483648", NumberError::Overflow),
            ("1e9223372036854775807", NumberError::Overflow),
            ("1e9223372036854775808", not("1e9223372036854775808")),
            ("1e-9223372036854775809", not("1e-9223372036854775809")),
            ("0e126", NumberError::Overflow),
            ("0e-131", NumberError::Underflow),
            ("123456789012345678901234567890123456789", NumberError::TooPrecise),
            ("1.00000000000000000000000000000000000001", NumberError::TooPrecise),
        ] {
            assert_eq!(text.parse::<Number>(), Err(error), "{text}");
        }
    }
}
