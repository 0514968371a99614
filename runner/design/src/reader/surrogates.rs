//! Replacement of surrogate pairs in JSON escapes by their characters.
//!
//! ASCII-only JSON writes a character above U+FFFF as two escapes, such as `\ud83d\ude00`. YAML has
//! no surrogate pairs, so this module replaces the pairs before the YAML parser reads the file.

use std::borrow::Cow;

/// The length of an escape: `\u` and four hexadecimal digits.
const LENGTH: usize = 6;

/// Returns the text with surrogate pairs replaced by their characters.
pub(super) fn join(text: &str) -> Cow<'_, str> {
    if !text.contains("\\ud") && !text.contains("\\uD") {
        return Cow::Borrowed(text);
    }
    let mut joined = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        let (before, escape) = rest.split_at(at);
        joined.push_str(before);
        let pair = unit(escape).zip(escape.get(LENGTH..).and_then(unit));
        let letter = pair.and_then(|(high, low)| char::decode_utf16([high, low]).next()?.ok());
        let (shown, length) = match letter.filter(|letter| letter.len_utf16() == 2) {
            Some(letter) => (Cow::Owned(letter.to_string()), 2 * LENGTH),
            // Skip the character after a backslash, so that `\\ud83d` is not taken for an escape.
            None => {
                let length = 1 + escape.chars().nth(1).map_or(0, char::len_utf8);
                (Cow::Borrowed(escape.get(..length).unwrap_or(escape)), length)
            }
        };
        joined.push_str(&shown);
        rest = escape.get(length..).unwrap_or_default();
    }
    joined.push_str(rest);
    Cow::Owned(joined)
}

/// Returns the UTF-16 code unit of a `\u` escape at the beginning of a text.
fn unit(text: &str) -> Option<u16> {
    let digits = text.get(..LENGTH)?.strip_prefix("\\u")?;
    u16::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_become_characters() {
        for (text, expected) in [
            ("plain", "plain"),
            (r#""a \ud83d\ude00 b""#, r#""a 😀 b""#),
            (r"\uD83D\uDE00\uD83D\uDE00", "😀😀"),
            (r"\\ud83d\ude00", r"\\ud83d\ude00"),
            (r"\ud83d", r"\ud83d"),
            (r"\ud83d\u0041", r"\ud83d\u0041"),
            (r"\u0041\ud83d\ude00\", "\\u0041😀\\"),
        ] {
            assert_eq!(join(text), expected);
        }
    }
}
