//! Selects items by the values of attributes and by prefixes of strings.
//!
//! `--key`, `--equals` and `--begins-with` set these conditions.

use model::{AttributeValue, Item};

use client::failure::{Result, fatal};

/// The conditions on the attributes of an item.
#[derive(Debug, Default)]
pub(super) struct ItemMatch {
    pub(super) equals: Item,
    pub(super) begins_with: Option<BeginsWith>,
}

/// A string attribute, and the prefix that its value must have.
#[derive(Debug)]
pub(super) struct BeginsWith {
    pub(super) attribute: String,
    pub(super) text: String,
}

impl ItemMatch {
    /// Returns true if the item meets all conditions.
    pub(super) fn is_met_by(&self, item: &Item) -> bool {
        self.equals.iter().all(|(name, value)| item.get(name) == Some(value))
            && self.begins_with.as_ref().is_none_or(|begins| {
                matches!(item.get(&begins.attribute), Some(AttributeValue::S(text)) if text.starts_with(&begins.text))
            })
    }
}

impl BeginsWith {
    /// Parses the value of `--begins-with`.
    ///
    /// # Errors
    /// When the value is not of the form ATTRIBUTE=TEXT.
    pub(super) fn parse(text: &str) -> Result<Self> {
        match text.split_once('=') {
            Some((attribute, text)) if !attribute.is_empty() && !text.is_empty() => {
                Ok(Self { attribute: attribute.to_owned(), text: text.to_owned() })
            }
            _ => Err(fatal!(
                "--begins-with `{text}` is not ATTRIBUTE=TEXT; write, for example, pk=TENANT#7#"
            )),
        }
    }
}
