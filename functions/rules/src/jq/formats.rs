//! Formats: the conversion of a value by `@name`.

use std::fmt::Write as _;

use base64::Engine;
use base64::alphabet::STANDARD as ALPHABET;
use base64::engine::general_purpose::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

use super::builtin::Format;
use super::json;
use super::machine::Machine;
use super::paths::described;
use super::stop::{Flow, Stop};
use super::value::Val;

/// A decoder for base64 with or without padding, as in jq.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &ALPHABET,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// Converts a value to a string in a format.
pub(super) fn format(machine: &Machine, format: Format, value: &Val) -> Flow<String> {
    machine.charge(value.nodes())?;
    let plain = || match json::text_of(value) {
        Val::Str(text) => text,
        _ => "".into(),
    };
    let text = match format {
        Format::Text => plain().to_string(),
        Format::Json => json::write(value),
        Format::Csv => {
            row(value, "csv", ",", &|text| format!("\"{}\"", text.replace('"', "\"\"")))?
        }
        Format::Tsv => row(value, "tsv", "\t", &|text| {
            let text = text.replace('\\', "\\\\").replace('\t', "\\t");
            text.replace('\n', "\\n").replace('\r', "\\r")
        })?,
        Format::Html => {
            let text = plain().replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
            text.replace('\'', "&apos;").replace('"', "&quot;")
        }
        Format::Uri => uri(&plain()),
        Format::Urid => from_uri(&plain()).ok_or_else(|| {
            Stop::error(format!("{} is not a valid uri encoding", described(value)))
        })?,
        Format::Sh => shell(value)?,
        Format::Base64 => STANDARD.encode(plain().as_bytes()),
        Format::Base64d => from_base64(&plain(), value)?,
    };
    machine.text_of(text.len())?;
    Ok(text)
}

fn row(value: &Val, name: &str, separator: &str, quote: &dyn Fn(&str) -> String) -> Flow<String> {
    let Val::Arr(array) = value else {
        let message = format!("{} cannot be {name}-formatted, only array", described(value));
        return Err(Stop::error(message));
    };
    let mut cells = Vec::new();
    for member in array.members() {
        cells.push(match member {
            Val::Null => String::new(),
            Val::Bool(_) => json::write(member),
            Val::Num(number) if number.rounded().is_nan() => {
                return Err(Stop::refused("a row that contains NaN is not available"));
            }
            Val::Num(number) => number.to_json(),
            Val::Str(text) => quote(text),
            member => {
                let message = format!("{} is not valid in a csv row", described(member));
                return Err(Stop::error(message));
            }
        });
    }
    Ok(cells.join(separator))
}

fn uri(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~') {
            encoded.push(char::from(byte));
        } else {
            // Writing to a `String` does not fail.
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

fn from_uri(text: &str) -> Option<String> {
    let mut parts = text.split('%');
    let mut bytes = parts.next()?.as_bytes().to_vec();
    for part in parts {
        let (digits, rest) = part.split_at_checked(2)?;
        if !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return None;
        }
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        bytes.extend_from_slice(rest.as_bytes());
    }
    String::from_utf8(bytes).ok()
}

fn shell(value: &Val) -> Flow<String> {
    let one = std::slice::from_ref(value);
    let members = if let Val::Arr(array) = value { array.members() } else { one };
    let mut words = Vec::new();
    for member in members {
        words.push(match member {
            Val::Arr(_) | Val::Obj(_) => {
                let message = format!("{} can not be escaped for shell", described(member));
                return Err(Stop::error(message));
            }
            Val::Str(text) => format!("'{}'", text.replace('\'', "'\\''")),
            member => json::write(member),
        });
    }
    Ok(words.join(" "))
}

fn from_base64(text: &str, value: &Val) -> Flow<String> {
    let digits = text.trim_end_matches('=');
    if text.len() - digits.len() > 2 || digits.contains('=') {
        return Err(Stop::refused(format!(
            "{} has base64 padding in an unexpected place",
            described(value)
        )));
    }
    if digits.len() % 4 == 1 {
        let message = format!("{} trailing base64 byte found", described(value));
        return Err(Stop::error(message));
    }
    let bytes = LENIENT
        .decode(digits)
        .map_err(|_| Stop::error(format!("{} is not valid base64 data", described(value))))?;
    match String::from_utf8(bytes) {
        Ok(text) => Ok(text),
        Err(_) => {
            let message =
                format!("{} is not the base64 encoding of a UTF-8 string", described(value));
            Err(Stop::refused(message))
        }
    }
}
