//! The identity of a source item: its table and key.

use std::fmt;
use std::str::FromStr;

use model::json::{item_from_str, item_to_string, write_attributes};
use model::{Item, KeySchema};
use thiserror::Error;

/// A source item, identified by its table and key. Its string form is `<table>|<key as DynamoDB
/// JSON>`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceItem {
    /// The table of the item.
    pub table: String,
    /// The key attributes of the item.
    pub key: Item,
}

/// The error for a string that does not identify a source item.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("invalid source item: expected `TABLE|KEY`, got=`{0}`")]
pub struct SourceItemError(String);

impl SourceItem {
    /// Returns the string that identifies a source item. It equals the `Display` output, but needs
    /// no copy of the key. A migration needs this string for each item that it reads.
    pub(super) fn text(table: &str, item: &Item, schema: &KeySchema) -> String {
        let mut text = format!("{table}|");
        write_attributes(&mut text, item.iter().filter(|(name, _)| schema.contains(name)));
        text
    }
}

impl fmt::Display for SourceItem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}|{}", self.table, item_to_string(&self.key))
    }
}

impl FromStr for SourceItem {
    type Err = SourceItemError;

    fn from_str(text: &str) -> Result<Self, SourceItemError> {
        let wrong = || SourceItemError(text.chars().take(256).collect());
        let (table, key) = text.split_once('|').ok_or_else(wrong)?;
        let key = item_from_str(key).map_err(|_| wrong())?;
        Ok(Self { table: table.to_owned(), key })
    }
}

#[cfg(test)]
mod tests {
    use model::{KeyAttribute, KeyAttributeType};

    use super::super::key_of;
    use super::*;

    #[test]
    fn the_text_is_that_of_the_key() {
        let attribute =
            |name: &str, attribute_type| KeyAttribute { name: name.to_owned(), attribute_type };
        let schema = KeySchema {
            partition: attribute("pk", KeyAttributeType::S),
            sort: Some(attribute("a\"", KeyAttributeType::N)),
        };
        let text = r#"{"pk":{"S":"k|\""},"other":{"L":[]},"a\"":{"N":"1.50"}}"#;
        let item = item_from_str(text).unwrap();
        let text = SourceItem::text("t", &item, &schema);
        assert_eq!(text, r#"t|{"a\"":{"N":"1.5"},"pk":{"S":"k|\""}}"#);
        let source = SourceItem { table: "t".to_owned(), key: key_of(&item, &schema) };
        assert_eq!((source.to_string(), text.parse()), (text, Ok(source)));
    }
}
