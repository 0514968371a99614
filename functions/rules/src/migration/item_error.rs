//! The reason why a migration cannot process an item.

use model::key::KeyError;
use model::limits::ITEM_BYTES_MAX;
use thiserror::Error;

use super::condition::UndecidedCondition;
use super::in_place::ATTRIBUTES_MAX;
use super::key_template::KeyTemplateError;
use super::split::DocumentError;
use super::transform::TransformError;
use crate::rule::Refusal;

/// The reason why a migration cannot process an item. Retries cannot succeed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ItemError {
    /// The transform fails for the item.
    #[error(transparent)]
    Transform(#[from] TransformError),
    /// The condition yields no single boolean for the item.
    #[error(transparent)]
    Condition(#[from] UndecidedCondition),
    /// The item cannot be split, or its parts form no document.
    #[error(transparent)]
    Document(#[from] DocumentError),
    /// A key template has no value for the item.
    #[error(transparent)]
    Template(#[from] KeyTemplateError),
    /// The item has no valid key.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// A table without a known key schema.
    #[error("there is no table `{0}`")]
    NoTable(String),
    /// A table that is not part of the plan.
    #[error("`{0}` is not part of the plan")]
    NotInPlan(String),
    /// Two targets of the item have the same key.
    #[error("the item becomes two items of `{table}` with the same key, {key}")]
    SameKey {
        /// The table of the targets.
        table: String,
        /// The key as DynamoDB JSON.
        key: String,
    },
    /// A target of the item has no room for its mark.
    #[error(
        "an item for `{table}` has {bytes} bytes with its mark, more than the {ITEM_BYTES_MAX} that DynamoDB accepts"
    )]
    TooLarge {
        /// The table of the target.
        table: String,
        /// The size of the target with its mark.
        bytes: usize,
    },
    /// A target of the item has an attribute with the name of a mark.
    #[error("the attribute `{0}` is reserved for the migration; rename it")]
    Reserved(&'static str),
    /// The condition of a change in place cannot compare all attributes of the item.
    #[error(
        "the item has {0} attributes before and after the change in total, but the condition of the change can compare at most {ATTRIBUTES_MAX}"
    )]
    TooManyAttributes(usize),
    /// The condition of a change in place cannot compare all new attributes of the item.
    #[error(
        "the item has {attributes} attributes before and after the change in total, of which {new} are new: too many for the condition of the change"
    )]
    TooManyNewAttributes {
        /// The number of attributes before and after the change.
        attributes: usize,
        /// The number of new attributes.
        new: usize,
    },
    /// A second run of a change in place changes the item again.
    #[error(
        "the transform is not idempotent: a second run changes the item again; write it so that a finished item stays unchanged, such as `.a //= 1`"
    )]
    NotIdempotent,
    /// A change in place changes the key of the item.
    #[error("the transform changes the key; use kind `restructure` and another table")]
    ChangedKey,
    /// A change in place yields no item.
    #[error("the transform yields no item; to delete items, use kind `purge`")]
    NoItem,
    /// A change in place yields several items.
    #[error("the transform yields several items; use kind `restructure`")]
    SeveralItems,
}

impl From<ItemError> for Refusal {
    fn from(error: ItemError) -> Self {
        Self(error.to_string())
    }
}
