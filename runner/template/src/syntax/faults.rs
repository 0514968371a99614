//! Explains why a text is not a template: it is not valid UTF-8, or it is invalid JSON.

use std::borrow::Cow;
use std::path::Path;

use crate::diagnostic::{Diagnostics, Findings, Span};

/// The message for a comma after the last member. The JSON parser reports this error in several
/// ways.
const TRAILING_COMMA: &str = "trailing comma";

/// Returns the diagnostic for bytes that are not valid UTF-8. Only the first `valid` bytes are
/// valid.
pub(crate) fn not_utf8(file: &str, bytes: &[u8], valid: usize) -> Diagnostics {
    let before = String::from_utf8_lossy(bytes.get(..valid).unwrap_or_default());
    let at = end_of(&before);
    let (text, message, help) = match utf16(bytes) {
        Some(text) => (
            Cow::Owned(text),
            "this is UTF-16, but a template must be UTF-8".to_owned(),
            "save the template as UTF-8, in PowerShell with `Set-Content -Encoding utf8`",
        ),
        None => (
            String::from_utf8_lossy(bytes),
            format!(
                "this is not UTF-8: no character begins with the byte 0x{:02X}, or a character is incomplete",
                bytes.get(valid).copied().unwrap_or_default()
            ),
            "save the template as UTF-8; editors call its current encoding Latin-1, Windows-1252 or ANSI",
        ),
    };
    let findings = Findings::new(file, &text);
    findings.error(at, message, help);
    findings.into_parts().0
}

/// Decodes UTF-16 with a byte order mark; returns `None` for any other encoding.
fn utf16(bytes: &[u8]) -> Option<String> {
    let unit: fn([u8; 2]) -> u16 = match bytes {
        [0xFF, 0xFE, ..] => u16::from_le_bytes,
        [0xFE, 0xFF, ..] => u16::from_be_bytes,
        _ => return None,
    };
    let pairs = bytes.get(2..).unwrap_or_default().chunks_exact(2);
    let units = pairs.filter_map(|pair| pair.try_into().ok()).map(unit);
    Some(char::decode_utf16(units).map(|letter| letter.unwrap_or('\u{fffd}')).collect())
}

/// Returns the location of an error in a text that is probably JSON, with a message and advice.
/// Returns `None` for other texts. The YAML parser would report the error at a later location, and
/// as an error in YAML.
pub(crate) fn broken_json(text: &str) -> Option<(Span, String, &'static str)> {
    let inside = text.trim_start().strip_prefix('{')?.trim_start();
    if !inside.is_empty() && !inside.starts_with(['"', '}']) {
        return None;
    }
    broken(text)
}

/// Returns the result of [`broken_json`] for a text that is valid YAML but invalid JSON. The text
/// is treated as JSON in two cases: it begins with a brace and has the file name of a JSON file, or
/// its first error is a comma after a last member. CloudFormation and all JSON parsers reject such
/// a text. A text without braces is YAML, even if it has the file name of a JSON file.
pub(crate) fn yaml_beside_json(file: &str, text: &str) -> Option<(Span, String, &'static str)> {
    let is_named = Path::new(file).extension().is_some_and(|it| it.eq_ignore_ascii_case("json"));
    if is_named && text.trim_start().starts_with('{') {
        return broken(text);
    }
    broken_json(text).filter(|(_, message, _)| message.ends_with(TRAILING_COMMA))
}

fn broken(text: &str) -> Option<(Span, String, &'static str)> {
    let error = serde_json::from_str::<serde::de::IgnoredAny>(text).err()?;
    let said = error.to_string();
    let line = text.lines().nth(error.line().saturating_sub(1)).unwrap_or_default();
    let before = line.get(..error.column().saturating_sub(1)).unwrap_or(line);
    let at = Span { line: error.line().max(1), column: before.chars().count() + 1, width: 1 };
    let what = if error.is_eof() {
        "the text is incomplete"
    } else if is_behind_comma(text, at.line, before) {
        TRAILING_COMMA
    } else {
        said.split(" at line ").next().unwrap_or_default()
    };
    let help = if error.is_eof() {
        "close every brace, bracket and quotation mark"
    } else if what.starts_with(TRAILING_COMMA) {
        "remove the comma before this; JSON allows none after the last member"
    } else if what.starts_with("key must be a string") {
        "write double quotation marks around each name"
    } else if what.starts_with("expected `,`") {
        "write a comma between two members, here or at the end of the previous line"
    } else {
        "check commas, quotation marks and brackets of this line and of the previous line"
    };
    Some((at, format!("this is not valid JSON: {what}"), help))
}

/// Returns true if a closing brace or bracket follows `before` in this line, and a comma precedes
/// it.
fn is_behind_comma(text: &str, line: usize, before: &str) -> bool {
    let lines: Vec<&str> = text.lines().take(line).collect();
    let Some((last, earlier)) = lines.split_last() else { return false };
    let rest = last.strip_prefix(before).unwrap_or_default();
    let mut pieces = std::iter::once(before).chain(earlier.iter().rev().copied());
    let said = pieces.find(|piece| !piece.trim().is_empty()).unwrap_or_default();
    rest.starts_with(['}', ']']) && said.trim_end().ends_with(',')
}

/// Returns the location after the last character of a text.
fn end_of(text: &str) -> Span {
    let line = text.matches('\n').count() + 1;
    let last = text.rsplit('\n').next().unwrap_or_default();
    Span { line, column: last.chars().count() + 1, width: 1 }
}
