//! A short preview of an attribute value, which fits into a cell.
//!
//! It processes only the part of the value that it shows. The page of the item shows the complete
//! value as DynamoDB JSON.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use model::AttributeValue;

/// A string that may be truncated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Preview {
    pub(crate) text: String,
    /// Whether the value was truncated.
    pub(crate) is_cut: bool,
}

impl Preview {
    /// Returns a preview of a value, of at most `characters`.
    pub(crate) fn of(value: &AttributeValue, characters: usize) -> Self {
        let mut writer = Writer { text: String::new(), left: characters, is_cut: false };
        match value {
            // Only strings within lists and maps are quoted.
            AttributeValue::S(text) => writer.visible(text),
            value => writer.value(value),
        }
        Self { text: writer.text, is_cut: writer.is_cut }
    }

    /// Returns a preview of a string, of at most `characters`.
    pub(crate) fn of_text(text: &str, characters: usize) -> Self {
        let mut writer = Writer { text: String::new(), left: characters, is_cut: false };
        writer.visible(text);
        Self { text: writer.text, is_cut: writer.is_cut }
    }
}

/// Returns a name, truncated to `characters`.
pub(crate) fn short(name: &str, characters: usize) -> String {
    let Preview { text, is_cut } = Preview::of_text(name, characters);
    if is_cut { text + "…" } else { text }
}

/// A writer that truncates its output when `left`, the number of remaining characters, reaches 0.
struct Writer {
    text: String,
    left: usize,
    is_cut: bool,
}

impl Writer {
    fn push(&mut self, text: &str) {
        for character in text.chars() {
            match self.left.checked_sub(1) {
                Some(left) => self.left = left,
                None => {
                    self.is_cut = true;
                    return;
                }
            }
            self.text.push(character);
        }
    }

    /// Writes a string. Escapes invisible characters, and characters that change the text
    /// direction.
    fn visible(&mut self, text: &str) {
        for character in text.chars() {
            if self.is_cut {
                return;
            }
            let turns = matches!(character, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
            if character.is_control() || turns {
                self.push(&character.escape_default().to_string());
            } else {
                self.push(character.encode_utf8(&mut [0; 4]));
            }
        }
    }

    fn value(&mut self, value: &AttributeValue) {
        match value {
            AttributeValue::S(text) => self.quoted(text),
            AttributeValue::N(number) => self.push(&number.to_string()),
            AttributeValue::B(bytes) => self.binary(bytes),
            AttributeValue::Bool(flag) => self.push(if *flag { "true" } else { "false" }),
            AttributeValue::Null => self.push("null"),
            AttributeValue::M(members) => self.list("{", "}", members, |writer, (name, value)| {
                writer.quoted(name);
                writer.push(": ");
                writer.value(value);
            }),
            AttributeValue::L(members) => self.list("[", "]", members, Self::value),
            AttributeValue::Ss(members) => {
                self.list("{", "}", members, |writer, member| writer.quoted(member));
            }
            AttributeValue::Ns(members) => {
                self.list("{", "}", members, |writer, member| writer.push(&member.to_string()));
            }
            AttributeValue::Bs(members) => {
                self.list("{", "}", members, |writer, member| writer.binary(member));
            }
        }
    }

    fn quoted(&mut self, text: &str) {
        self.push("\"");
        self.visible(text);
        self.push("\"");
    }

    /// Writes bytes as base64, but encodes only as many as can be shown.
    fn binary(&mut self, bytes: &[u8]) {
        let most = self.left.saturating_add(4) / 4 * 3;
        self.push(&STANDARD.encode(bytes.get(..most).unwrap_or(bytes)));
        self.is_cut |= bytes.len() > most;
    }

    fn list<T>(
        &mut self,
        begin: &str,
        end: &str,
        members: impl IntoIterator<Item = T>,
        write: impl Fn(&mut Self, T),
    ) {
        self.push(begin);
        for (position, member) in members.into_iter().enumerate() {
            if self.is_cut {
                return;
            }
            self.push(if position == 0 { "" } else { ", " });
            write(self, member);
        }
        self.push(end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::json::attribute_value_from_str;

    #[test]
    fn a_preview_shows_as_much_of_a_value_as_fits() {
        for (json, characters, expected, is_cut) in [
            (r#"{"S":"plain"}"#, 5, "plain", false),
            (r#"{"S":"plain"}"#, 4, "plai", true),
            (r#"{"S":"ü€😀x"}"#, 3, "ü€😀", true),
            (r#"{"S":"a\nb\u0000\u202ec"}"#, 99, r"a\nb\u{0}\u{202e}c", false),
            (r#"{"S":""}"#, 9, "", false),
            (r#"{"N":"1.50"}"#, 9, "1.5", false),
            (r#"{"B":"AAEC"}"#, 9, "AAEC", false),
            (r#"{"B":"AAECAwQFBgcICQoLDA0ODw=="}"#, 8, "AAECAwQF", true),
            (r#"{"BOOL":true}"#, 9, "true", false),
            (r#"{"NULL":true}"#, 9, "null", false),
            (r#"{"SS":["b","a"]}"#, 99, r#"{"a", "b"}"#, false),
            (r#"{"NS":["2","1"]}"#, 99, "{1, 2}", false),
            (r#"{"BS":["AQ=="]}"#, 99, "{AQ==}", false),
            (r#"{"L":[{"S":"a"},{"L":[]}]}"#, 99, r#"["a", []]"#, false),
            (r#"{"M":{"<b>":{"N":"1"},"c":{"M":{}}}}"#, 99, r#"{"<b>": 1, "c": {}}"#, false),
            (r#"{"L":[{"N":"1"},{"N":"2"},{"N":"3"}]}"#, 4, "[1, ", true),
        ] {
            let preview = Preview::of(&attribute_value_from_str(json).unwrap(), characters);
            assert_eq!((preview.text.as_str(), preview.is_cut), (expected, is_cut), "{json}");
        }
        let long = AttributeValue::B(vec![0; 400 * 1024]);
        assert!(Preview::of(&long, 10).text.len() == 10);
    }
}
