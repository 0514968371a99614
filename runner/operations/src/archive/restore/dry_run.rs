//! Predicts a restore: compares each row with the table, and with the rows that would be put before
//! it.
//!
//! A dry run only reads. It cannot predict concurrent writes, or failures because an item that this
//! restore puts has too many attributes for a condition.

use std::collections::BTreeMap;

use locks::Mutex;

use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::types::AttributeDefinition;
use md5::{Digest as _, Md5};
use model::limits::ITEM_BYTES_MAX;
use model::{AttributeValue, Item, json};
use rules::marks::restored::Origin;

use super::newest::{KeepReason, RowDecision, RowResult, verdict};
use super::{Target, too_many};
use crate::unchanged::Unchanged;
use client::attribute::{from_sdk_item, to_sdk_value};
use client::failure::{Context, Failure, Result};

/// The rows that the restore would put: for each, a hash of the key and the row's stamp. A key takes
/// some hundred bytes.
#[derive(Debug, Default)]
pub(super) struct DryRun {
    planned: Mutex<BTreeMap<u128, String>>,
}

impl DryRun {
    /// Predicts the result of a row. `item` is the item that would be put.
    ///
    /// # Errors
    /// When the table cannot be read.
    pub(super) async fn fate(
        &self,
        target: &Target,
        origin: Origin<'_>,
        item: &Item,
    ) -> Result<RowResult> {
        if let Some(reason) = refusal(item, &target.definitions) {
            return Ok(RowResult::Skipped(reason));
        }
        let mut key = item.clone();
        key.retain(|name, _| target.form.is_key(name));
        let hash = u128::from_be_bytes(Md5::digest(json::item_to_string(&key)).into());
        if let Some(fate) = self.beside_planned(hash, origin.stamp) {
            return Ok(fate);
        }
        let live = match live(target, &key).await {
            Err(Failure::Refused(reason)) => return Ok(RowResult::Skipped(reason)),
            live => live?,
        };
        // Another row of the same key may have been planned since the first check.
        if let Some(fate) = self.beside_planned(hash, origin.stamp) {
            return Ok(fate);
        }
        match verdict(live.as_ref(), origin, &target.form) {
            RowDecision::Keep(kept) => Ok(RowResult::Kept(kept)),
            RowDecision::Put => {
                let key = target.form.partition_key();
                if let Err(attributes) = Unchanged::of(key, live.as_ref(), Some(item)) {
                    return Ok(RowResult::Skipped(too_many(attributes)));
                }
                self.plan(hash, origin.stamp);
                Ok(RowResult::Restored { replaces: live.is_some() })
            }
        }
    }

    /// Returns the result of a row whose key already has a planned row; `None` if the key has none.
    fn beside_planned(&self, hash: u128, stamp: &str) -> Option<RowResult> {
        let mut planned = self.planned.lock();
        let known = planned.get_mut(&hash)?;
        if stamp <= known.as_str() {
            return Some(RowResult::Kept(KeepReason::Newer));
        }
        stamp.clone_into(known);
        Some(RowResult::Restored { replaces: true })
    }

    fn plan(&self, hash: u128, stamp: &str) {
        let mut planned = self.planned.lock();
        planned.insert(hash, stamp.to_owned());
    }
}

/// Returns why DynamoDB would reject an item, as far as the item and the table's definitions show
/// it. A key of a wrong type is reported when the item is read.
fn refusal(item: &Item, definitions: &[AttributeDefinition]) -> Option<String> {
    if item.size() > ITEM_BYTES_MAX {
        return Some(format!(
            "the item with its restore mark has {} bytes, more than the limit of {ITEM_BYTES_MAX}",
            item.size()
        ));
    }
    definitions.iter().find_map(|definition| {
        let name = definition.attribute_name();
        let value = item.get(name)?;
        let (is, must) = (value.attribute_type().descriptor(), definition.attribute_type());
        if is != must.as_str() {
            return Some(format!(
                "`{name}` is of type {is}, but a key of the table requires type {must}"
            ));
        }
        let is_empty = match value {
            AttributeValue::S(text) => text.is_empty(),
            AttributeValue::B(bytes) => bytes.is_empty(),
            _ => false,
        };
        is_empty.then(|| format!("`{name}` is empty, which a key attribute must not be"))
    })
}

/// Reads the item under a key.
///
/// # Errors
/// When the item cannot be read; a refusal if the key is invalid.
async fn live(target: &Target, key: &Item) -> Result<Option<Item>> {
    let doing = || format!("cannot read an item of `{}`", target.table);
    let request = target.client.get_item().table_name(&target.table).consistent_read(true);
    let request =
        key.iter().fold(request, |request, (name, value)| request.key(name, to_sdk_value(value)));
    match request.send().await {
        Ok(answer) => answer.item.map(from_sdk_item).transpose().context(doing),
        Err(SdkError::ServiceError(error)) if error.err().code() == Some("ValidationException") => {
            Err(Failure::Refused(error.err().message().unwrap_or_default().to_owned()))
        }
        Err(error) => Err(error).context(doing),
    }
}
