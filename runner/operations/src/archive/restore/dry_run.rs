//! What a restore would do: each row against the table as it is now, and against the rows that would
//! have been put before it.
//!
//! The table is read, and nothing is written. What others write between this and the restore is not
//! foreseen, nor is that an older row's item has too many attributes to be compared if this very
//! restore would have put it.

use std::collections::BTreeMap;

use locks::Mutex;

use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::types::AttributeDefinition;
use md5::{Digest as _, Md5};
use model::limits::ITEM_BYTES_MAX;
use model::{AttributeValue, Item, json};
use rules::archive::restored::Origin;

use super::Target;
use super::newest::{Fate, Kept, Verdict, verdict};
use super::unchanged::Unchanged;
use client::attribute::{from_sdk_item, to_sdk_value};
use client::sdk_error::error_text;

/// The rows that would have been put, each by a hash of its key with its place in time: some hundred
/// bytes for each key, however large its item is.
#[derive(Debug, Default)]
pub(super) struct DryRun {
    planned: Mutex<BTreeMap<u128, String>>,
}

impl DryRun {
    /// What would become of a row, whose item is as it would be put.
    ///
    /// # Errors
    /// When the table cannot be read.
    pub(super) async fn fate(
        &self,
        target: &Target,
        origin: Origin<'_>,
        item: &Item,
    ) -> Result<Fate, String> {
        if let Some(reason) = refusal(item, &target.definitions) {
            return Ok(Fate::Skipped(reason));
        }
        let mut key = item.clone();
        key.retain(|name, _| target.form.is_key(name));
        let hash = u128::from_be_bytes(Md5::digest(json::item_to_string(&key)).into());
        if let Some(fate) = self.beside_planned(hash, origin.stamp) {
            return Ok(fate);
        }
        let live = match live(target, &key).await? {
            Ok(live) => live,
            Err(reason) => return Ok(Fate::Skipped(reason)),
        };
        // Another row of the key may have been planned meanwhile.
        if let Some(fate) = self.beside_planned(hash, origin.stamp) {
            return Ok(fate);
        }
        match verdict(live.as_ref(), origin, &target.form) {
            Verdict::Keep(kept) => Ok(Fate::Kept(kept)),
            Verdict::Put => {
                if let Some(Err(reason)) = live.as_ref().map(|live| Unchanged::of(live, item)) {
                    return Ok(Fate::Skipped(reason));
                }
                self.plan(hash, origin.stamp);
                Ok(Fate::Restored { replaces: live.is_some() })
            }
        }
    }

    /// What becomes of a row whose key has another one that would be put; `None` if it has none.
    fn beside_planned(&self, hash: u128, stamp: &str) -> Option<Fate> {
        let mut planned = self.planned.lock();
        let known = planned.get_mut(&hash)?;
        if stamp <= known.as_str() {
            return Some(Fate::Kept(Kept::Newer));
        }
        stamp.clone_into(known);
        Some(Fate::Restored { replaces: true })
    }

    fn plan(&self, hash: u128, stamp: &str) {
        let mut planned = self.planned.lock();
        planned.insert(hash, stamp.to_owned());
    }
}

/// Why DynamoDB would not take an item, as far as the item and the table's definitions tell it. A
/// key of another type it tells itself when it is asked for the item.
fn refusal(item: &Item, definitions: &[AttributeDefinition]) -> Option<String> {
    if item.size() > ITEM_BYTES_MAX {
        return Some(format!(
            "the item has {} bytes with its mark, and at most {ITEM_BYTES_MAX} fit into a table",
            item.size()
        ));
    }
    definitions.iter().find_map(|definition| {
        let name = definition.attribute_name();
        let value = item.get(name)?;
        let (is, must) = (value.attribute_type().descriptor(), definition.attribute_type());
        if is != must.as_str() {
            return Some(format!("`{name}` is of type {is}, and a key of the table has {must}"));
        }
        let is_empty = match value {
            AttributeValue::S(text) => text.is_empty(),
            AttributeValue::B(bytes) => bytes.is_empty(),
            _ => false,
        };
        is_empty.then(|| format!("`{name}` is empty, which no key of a table can be"))
    })
}

/// The item that stands in the table under a key, or why it can have none.
async fn live(target: &Target, key: &Item) -> Result<Result<Option<Item>, String>, String> {
    let failed = |reason: &dyn std::fmt::Display| {
        format!("cannot read an item of `{}`: {reason}", target.table)
    };
    let request = target.client.get_item().table_name(&target.table).consistent_read(true);
    let request =
        key.iter().fold(request, |request, (name, value)| request.key(name, to_sdk_value(value)));
    match request.send().await {
        Ok(answer) => {
            let item = answer.item.map(from_sdk_item).transpose();
            item.map(Ok).map_err(|reason| failed(&reason))
        }
        Err(SdkError::ServiceError(error)) if error.err().code() == Some("ValidationException") => {
            Ok(Err(error.err().message().unwrap_or_default().to_owned()))
        }
        Err(error) => Err(failed(&error_text(&error))),
    }
}
