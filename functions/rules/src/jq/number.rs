//! Numbers of transforms: floating-point numbers for computing, and literals that keep their
//! digits.
//!
//! jq computes in 64-bit floating point, but keeps the digits of a number that it only copies. This
//! module does the same, with one difference: if jq would round digits of an item's number or of a
//! computed integer, the transform is refused. Numbers of both kinds are written as in jq.

use std::cmp::Ordering;
use std::sync::Arc;

/// Integers up to this magnitude are exact in 64-bit floating point.
pub(super) const EXACT_MAX: f64 = 9_007_199_254_740_992.0;
/// The maximum length of a literal in characters.
const LITERAL_CHARS_MAX: usize = 400;
/// The maximum number of zeros before the first digit in plain notation. Both of jq's number
/// libraries use this maximum.
const LEADING_ZEROS_MAX: i64 = 5;

/// A number.
#[derive(Clone, Debug)]
pub(crate) enum Num {
    /// A computed number.
    Float(f64),
    /// A number as it is written in the input.
    Literal(Arc<Literal>),
}

/// A decimal number: `digits * 10^exponent`. Trailing zeros of the input are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Literal {
    is_negative: bool,
    /// The digits without leading zeros; `0` for zero.
    digits: String,
    exponent: i64,
}

impl Num {
    /// Returns whether jq parses a string as a number that [`Num::parse`] rejects: infinity, NaN,
    /// or a number out of bounds.
    pub(crate) fn is_unsure(text: &str) -> bool {
        let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text).to_ascii_lowercase();
        let (mantissa, exponent) = unsigned.split_once('e').unwrap_or((&unsigned, "0"));
        let exponent = exponent.strip_prefix(['-', '+']).unwrap_or(exponent);
        let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let is_number = digits(whole) && digits(fraction) && digits(exponent);
        let has_digits = whole.len() + fraction.len() > 0 && !exponent.is_empty();
        let is_name = ["nan", "snan", "inf"].iter().any(|name| unsigned.starts_with(name));
        is_name || (is_number && has_digits)
    }

    /// Parses decimal notation, with or without an exponent; `None` for any other string.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (is_negative, unsigned) = match text.as_bytes().first() {
            Some(b'-') => (true, text.get(1..)?),
            Some(b'+') => (false, text.get(1..)?),
            _ => (false, text),
        };
        if text.len() > LITERAL_CHARS_MAX {
            return None;
        }
        let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => {
                let digits = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
                if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
                    return None;
                }
                (mantissa, exponent.parse::<i32>().ok()?)
            }
            None => (unsigned, 0),
        };
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let digits = || whole.bytes().chain(fraction.bytes());
        if digits().next().is_none() || !digits().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let digits = format!("{whole}{fraction}");
        let digits = match digits.trim_start_matches('0') {
            "" => "0",
            digits => digits,
        };
        let exponent = i64::from(exponent) - i64::try_from(fraction.len()).ok()?;
        let literal = Literal { is_negative, digits: digits.to_owned(), exponent };
        Some(Self::Literal(Arc::new(literal)))
    }

    /// Returns the value that jq computes with. This value may have fewer digits.
    pub(crate) fn rounded(&self) -> f64 {
        match self {
            Self::Float(value) => *value,
            Self::Literal(literal) => literal.rounded(),
        }
    }

    /// Returns the value that jq computes with; `None` if it would lose digits.
    pub(crate) fn exact(&self) -> Option<f64> {
        match self {
            Self::Float(value) => Some(*value),
            Self::Literal(literal) => {
                let rounded = literal.rounded();
                let (digits, exponent) = shortest(rounded)?;
                let (known, zeros) = literal.significant();
                (known == digits && zeros == exponent).then_some(rounded)
            }
        }
    }

    /// Returns whether the number is NaN, which only a computation yields.
    pub(crate) fn is_nan(&self) -> bool {
        matches!(self, Self::Float(value) if value.is_nan())
    }

    /// Returns the number with the opposite sign.
    pub(crate) fn negated(&self) -> Self {
        match self {
            Self::Float(value) => Self::Float(-value),
            Self::Literal(literal) => {
                let is_negative = !literal.is_negative;
                Self::Literal(Arc::new(Literal { is_negative, ..Literal::clone(literal) }))
            }
        }
    }

    /// Returns whether the number is below zero.
    pub(crate) fn is_negative(&self) -> bool {
        self.rounded() < 0.0
    }

    /// Returns the number as jq writes it in JSON.
    pub(crate) fn to_json(&self) -> String {
        match self {
            Self::Literal(literal) => literal.to_json(),
            Self::Float(value) => float_to_json(*value),
        }
    }

    /// Compares numbers as jq does. Two literals are compared by all their digits. Other numbers
    /// are compared in floating point, and NaN is less than any number.
    pub(crate) fn compare(&self, other: &Self) -> Ordering {
        if let (Self::Literal(left), Self::Literal(right)) = (self, other) {
            return left.compare(right);
        }
        let (left, right) = (self.rounded(), other.rounded());
        left.partial_cmp(&right).unwrap_or(if left.is_nan() {
            Ordering::Less
        } else {
            Ordering::Greater
        })
    }
}

impl Literal {
    fn rounded(&self) -> f64 {
        let sign = if self.is_negative { "-" } else { "" };
        format!("{sign}{}e{}", self.digits, self.exponent).parse().unwrap_or(f64::NAN)
    }

    /// Returns the digits without trailing zeros, and the exponent for these digits.
    fn significant(&self) -> (&str, i64) {
        match self.digits.trim_end_matches('0') {
            "" => ("0", 0),
            digits => {
                let zeros = self.digits.len() - digits.len();
                (digits, self.exponent.saturating_add(i64::try_from(zeros).unwrap_or(0)))
            }
        }
    }

    fn to_json(&self) -> String {
        let sign = if self.is_negative { "-" } else { "" };
        let length = i64::try_from(self.digits.len()).unwrap_or(i64::MAX);
        let first = self.exponent.saturating_add(length - 1);
        if self.exponent <= 0 && first > -LEADING_ZEROS_MAX - 2 {
            return format!("{sign}{}", plain(&self.digits, length + self.exponent));
        }
        let (head, tail) = self.digits.split_at(1);
        let point = if tail.is_empty() { "" } else { "." };
        format!("{sign}{head}{point}{tail}E{first:+}")
    }

    fn compare(&self, other: &Self) -> Ordering {
        let key = |literal: &Self| {
            let (digits, exponent) = literal.significant();
            let (is_zero, length) = (digits == "0", i64::try_from(digits.len()).unwrap_or(0));
            let sign = if is_zero { 0 } else { 1 - 2 * i8::from(literal.is_negative) };
            (sign, exponent.saturating_add(length), digits.to_owned())
        };
        let ((sign, place, digits), (other_sign, other_place, other_digits)) =
            (key(self), key(other));
        let magnitude = place.cmp(&other_place).then_with(|| digits.cmp(&other_digits));
        sign.cmp(&other_sign).then(if sign < 0 { magnitude.reverse() } else { magnitude })
    }
}

/// Returns digits in plain notation, with the decimal point after the first `point` of them.
fn plain(digits: &str, point: i64) -> String {
    let length = i64::try_from(digits.len()).unwrap_or(i64::MAX);
    if point <= 0 {
        let zeros = usize::try_from(-point).unwrap_or(0);
        return format!("0.{}{digits}", "0".repeat(zeros));
    }
    if point >= length {
        let zeros = usize::try_from(point - length).unwrap_or(0);
        return format!("{digits}{}", "0".repeat(zeros));
    }
    let (whole, fraction) = digits.split_at(usize::try_from(point).unwrap_or(0));
    format!("{whole}.{fraction}")
}

/// Returns the shortest digits, without a sign, that parse to this number, and their exponent.
/// Returns `None` for infinity and NaN.
fn shortest(value: f64) -> Option<(String, i64)> {
    if !value.is_finite() {
        return None;
    }
    let text = format!("{:e}", value.abs());
    let (mantissa, exponent) = text.split_once('e')?;
    let digits: String = mantissa.chars().filter(|digit| *digit != '.').collect();
    let fraction = i64::try_from(digits.len()).ok()? - 1;
    Some((digits, if value == 0.0 { 0 } else { exponent.parse::<i64>().ok()? - fraction }))
}

fn float_to_json(value: f64) -> String {
    if value.is_nan() {
        return "null".to_owned();
    }
    let value = value.clamp(f64::MIN, f64::MAX);
    let Some((digits, exponent)) = shortest(value) else { return "null".to_owned() };
    let sign = if value.is_sign_negative() { "-" } else { "" };
    let length = i64::try_from(digits.len()).unwrap_or(i64::MAX);
    let point = length + exponent;
    if point < -LEADING_ZEROS_MAX + 2 || point > length + 15 {
        let (head, tail) = digits.split_at(1);
        let dot = if tail.is_empty() { "" } else { "." };
        let (direction, power) = if point < 1 { ('-', 1 - point) } else { ('+', point - 1) };
        return format!("{sign}{head}{dot}{tail}e{direction}{power:02}");
    }
    format!("{sign}{}", plain(&digits, point))
}
