//! Which items are meant: those with given attributes, and with a text that begins as given.
//!
//! `--key`, `--equals` and `--begins-with` give them.

use model::{AttributeValue, Item};

use client::failure::{Result, fatal};

/// The attributes that an item must have.
#[derive(Debug, Default)]
pub(super) struct ItemMatch {
    pub(super) equals: Item,
    pub(super) begins_with: Option<BeginsWith>,
}

/// An attribute, and the beginning of its text.
#[derive(Debug)]
pub(super) struct BeginsWith {
    pub(super) attribute: String,
    pub(super) text: String,
}

impl ItemMatch {
    /// Returns true if the item has all attributes.
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
    /// When it is not ATTRIBUTE=TEXT.
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
