//! Interprets a plain scalar like SAM's parser, which implements YAML 1.1. This parser converts
//! `yes` to true and `0755` to the octal number 493, and SAM uses the converted value. This module
//! does not handle nulls and dates.
//!
//! The rules are those of the resolver in PyYAML, which SAM uses: YAML 1.1, "Language-Independent
//! Types". One exception: a float must have a decimal point.

/// The minimum of the range in which floats are compared. In this range, no writer formats a float
/// with an exponent.
const FLOAT_MIN: f64 = 1e-4;
const FLOAT_MAX: f64 = 1e15;

/// Returns the string that SAM converts a plain scalar to, if it differs from the string in the
/// template; otherwise `None`.
pub(crate) fn differs(text: &str) -> Option<String> {
    typed(text).filter(|value| value != text)
}

/// Returns the value of a plain scalar as JSON; `None` if the scalar is a string.
pub(crate) fn typed(text: &str) -> Option<String> {
    Some(match text {
        "yes" | "Yes" | "YES" | "on" | "On" | "ON" | "true" | "True" | "TRUE" => "true".to_owned(),
        "no" | "No" | "NO" | "off" | "Off" | "OFF" | "false" | "False" | "FALSE" => {
            "false".to_owned()
        }
        _ => number(text)?,
    })
}

fn number(text: &str) -> Option<String> {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", text.strip_prefix('+').unwrap_or(text)),
    };
    if !digits.starts_with(|first: char| first.is_ascii_digit() || first == '.') {
        return None;
    }
    if let Some(whole) = integer(digits) {
        // PyYAML writes zero without a sign.
        let sign = if whole == 0 { "" } else { sign };
        return Some(format!("{sign}{whole}"));
    }
    if digits.starts_with('.') && digits.len() < text.len() {
        return None;
    }
    let value = float(digits)?;
    (value == 0.0 || (FLOAT_MIN..FLOAT_MAX).contains(&value)).then(|| format!("{sign}{value:?}"))
}

/// Parses binary, octal, hexadecimal, decimal and sexagesimal numbers, with underscores between
/// digits.
fn integer(digits: &str) -> Option<u64> {
    if digits.contains(':') {
        return sexagesimal(digits);
    }
    let (radix, rest) = match digits.strip_prefix('0') {
        Some("") => return Some(0),
        Some(rest) => match (rest.strip_prefix('b'), rest.strip_prefix('x')) {
            (Some(rest), _) => (2, rest),
            (_, Some(rest)) => (16, rest),
            _ => (8, rest),
        },
        None => (10, digits),
    };
    let plain = rest.replace('_', "");
    // `from_str_radix` would accept an additional sign.
    if plain.starts_with(['+', '-']) {
        return None;
    }
    u64::from_str_radix(&plain, radix).ok()
}

/// Parses a number with base 60: `1:30` is 90. The first group of digits has no leading zero.
fn sexagesimal(digits: &str) -> Option<u64> {
    let mut parts = digits.split(':');
    let first = parts.next().filter(|first| !first.starts_with('0'))?;
    let mut value: u64 = first.replace('_', "").parse().ok()?;
    for part in parts {
        let is_digit = |letter: char| letter.is_ascii_digit();
        let digit: u64 = part.parse().ok().filter(|digit| *digit < 60)?;
        if part.len() > 2 || !part.chars().all(is_digit) {
            return None;
        }
        value = value.checked_mul(60)?.checked_add(digit)?;
    }
    Some(value)
}

fn float(digits: &str) -> Option<f64> {
    let plain = digits.replace('_', "");
    let (whole, rest) = plain.split_once('.')?;
    let (fraction, exponent) = match rest.split_once(['e', 'E']) {
        Some((fraction, exponent)) => (fraction, Some(exponent)),
        None => (rest, None),
    };
    let are_digits = |text: &str| text.chars().all(|letter| letter.is_ascii_digit());
    // An exponent without a sign makes the scalar a string.
    let has_form = are_digits(whole)
        && are_digits(fraction)
        && !(whole.is_empty() && fraction.is_empty())
        && exponent.is_none_or(|exponent| {
            exponent.strip_prefix(['+', '-']).is_some_and(|it| !it.is_empty() && are_digits(it))
        });
    if has_form { plain.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::differs;

    #[test]
    fn a_scalar_differs_where_yaml_1_1_has_a_type_for_it() {
        let cases: &[(&str, Option<&str>)] = &[
            ("yes", Some("true")),
            ("Off", Some("false")),
            ("True", Some("true")),
            ("true", None),
            ("y", None),
            ("yEs", None),
            ("0755", Some("493")),
            ("0o755", None),
            ("089", None),
            ("0", None),
            ("00", Some("0")),
            ("0x1F", Some("31")),
            ("0b101", Some("5")),
            ("1_000", Some("1000")),
            ("+5", Some("5")),
            ("-5", None),
            ("-0", Some("0")),
            ("300", None),
            ("123456789012", None),
            ("012345670123", Some("1402433619")),
            ("99999999999999999999", None),
            ("1.10", Some("1.1")),
            ("1.0", None),
            ("1.", Some("1.0")),
            (".5", Some("0.5")),
            ("-.5", None),
            ("-2.50", Some("-2.5")),
            ("1.5", None),
            ("1.2.3", None),
            ("1e3", None),
            ("1.5e3", None),
            ("1.5e+3", Some("1500.0")),
            ("1:30", Some("90")),
            ("12:30:45", Some("45045")),
            ("09:30", None),
            ("1:75", None),
            ("127.0.0.1:8000", None),
            ("2026-11-20", None),
            ("-", None),
            ("--5", None),
            (".", None),
            ("0x", None),
            ("a", None),
            ("", None),
        ];
        for (text, expected) in cases {
            assert_eq!(differs(text).as_deref(), *expected, "{text}");
        }
    }
}
