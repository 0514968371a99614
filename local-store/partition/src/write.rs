//! Application of a write to one item. One batch contains all its effects: the item, its expiry and
//! index entries, its stream record, and the partition's statistics.
//!
//! No request makes this module fail: the reply to a write that cannot be applied contains the
//! reason.

use expression::{Condition, Path, Update, UpdateError};
use model::limits::{ITEM_BYTES_MAX, NESTING_LEVELS_MAX};
use model::{EncodedItem, EpochMillis, Item, PrimaryKey};

use crate::command::reply::{ItemCollection, Reply, Written};
use crate::command::{Write, WriteAction};
use crate::entry::sequence::Sequence;
use crate::image::{Image, ItemChange, damaged};
use crate::index::refusal::{self, ItemRefusal};
use crate::index::upkeep::{self, EntryChange};
use crate::item_collection::{self, Collection};
use crate::keys::item;
use crate::keys::statistics::{self, Statistics};
use crate::mutation::{self, Mutation};
use crate::storage::overlay::Overlay;
use crate::storage::{ReadError, View};
use crate::stream;
use crate::table::Table;
use crate::table::index::SecondaryIndex;
use crate::table::time_to_live::TimeToLive;
use crate::time_to_live;

/// The number of attributes for which capacity is reserved. Most writes use fewer.
const NAMES_EXPECTED: usize = 16;

/// Applies a write. `stored` is the storage key of its item.
pub(crate) fn apply_write(
    overlay: &mut Overlay<'_>,
    table: &Table,
    sequence: Sequence,
    now: EpochMillis,
    write: &Write,
    stored: Vec<u8>,
) -> Result<Reply, ReadError> {
    let old = read_old(overlay, &stored)?;
    let part = old.as_ref().map(|old| old.part(&names_looked_at(write, table))).transpose()?;
    if let Some(condition) = &write.condition
        && !holds(condition, part.as_ref())
        && !mutation::is_active(Mutation::IgnoreCondition)
        && !(matches!(write.action, WriteAction::Check)
            && mutation::is_active(Mutation::SkipTransactionCheck))
    {
        let new_bytes = match &write.action {
            WriteAction::Put(encoded) => encoded.size().map_err(damaged)?,
            WriteAction::Delete | WriteAction::Update(_) | WriteAction::Check => 0,
        };
        let bytes = old.as_ref().map_or(0, Image::size).max(new_bytes);
        let item = old.filter(|_| write.return_on_failure).as_ref().map(Image::item).transpose()?;
        return Ok(Reply::ConditionFailed { item, bytes });
    }
    let new = match &write.action {
        WriteAction::Put(encoded) => Some(Image::stored(encoded.clone())?),
        WriteAction::Delete => None,
        WriteAction::Check => old.clone(),
        WriteAction::Update(update) => {
            match updated(update, old.as_ref().zip(part.as_ref()), &write.key, table)? {
                Ok(new) => new,
                Err(refusal) => return Ok(refused(refusal)),
            }
        }
    };
    let change =
        ItemChange { key: &write.key, old: old.as_ref(), new: new.as_ref(), time_to_live: false };
    let entries = upkeep::entry_changes(table, &change)?;
    if let (WriteAction::Put(_), Some(image)) = (&write.action, &new)
        && let Err(refusal) = check_put(table, image, &entries)?
    {
        return Ok(refused(refusal));
    }
    let collection = match item_collection::count(overlay, table, &change, &entries, true)? {
        Collection::None => None,
        Collection::Bytes(bytes) => {
            let partition = write.key.partition.clone();
            Some(Box::new(ItemCollection { partition, bytes }))
        }
        Collection::TooLarge => return Ok(Reply::ItemCollectionTooLarge),
    };
    let sizes = replace(overlay, table, sequence, now, stored, &change, entries)?;
    Ok(Reply::Written(Written {
        old: old.filter(|_| write.return_old).as_ref().map(Image::item).transpose()?,
        new: new.filter(|_| write.return_new).as_ref().map(Image::item).transpose()?,
        collection,
        ..sizes
    }))
}

/// Deletes an item if it is still expired. `stored` is the storage key of the item.
pub(crate) fn apply_expire(
    overlay: &mut Overlay<'_>,
    table: &Table,
    sequence: Sequence,
    now: EpochMillis,
    key: &PrimaryKey,
    expires_at: u64,
    stored: Vec<u8>,
) -> Result<Reply, ReadError> {
    let TimeToLive::Enabled { attribute } = &table.time_to_live else {
        return Ok(Reply::Done { more: false });
    };
    let old = read_old(overlay, &stored)?;
    let still = |old: &Image| -> Result<bool, ReadError> {
        Ok(time_to_live::expires_at(old.encoded(), attribute)? == Some(expires_at)
            || mutation::is_active(Mutation::ExpireExtended))
    };
    if let Some(old) = old
        && still(&old)?
        && time_to_live::is_expired(expires_at, now)
    {
        let change = ItemChange { key, old: Some(&old), new: None, time_to_live: true };
        let entries = upkeep::entry_changes(table, &change)?;
        item_collection::count(overlay, table, &change, &entries, false)?;
        replace(overlay, table, sequence, now, stored, &change, entries)?;
    }
    Ok(Reply::Done { more: false })
}

/// Replaces an item with the result that a transaction has prepared, without further checks.
pub(crate) fn replace_with(
    overlay: &mut Overlay<'_>,
    table: &Table,
    sequence: Sequence,
    now: EpochMillis,
    key: &PrimaryKey,
    new: Option<EncodedItem>,
) -> Result<Written, ReadError> {
    let stored = item::encode(table.id, key);
    let old = read_old(overlay, &stored)?;
    let new = new.map(Image::stored).transpose()?;
    let change = ItemChange { key, old: old.as_ref(), new: new.as_ref(), time_to_live: false };
    let entries = upkeep::entry_changes(table, &change)?;
    // The size limit was checked when the item was prepared. A commit must not fail because of
    // later changes, so the limit is not checked again.
    item_collection::count(overlay, table, &change, &entries, false)?;
    replace(overlay, table, sequence, now, stored, &change, entries)
}

/// Checks whether the indexes of a table accept an item to put. Skips the indexes that get an
/// entry, because creating the entry has already validated the values.
fn check_put(
    table: &Table,
    image: &Image,
    entries: &[EntryChange<'_, '_>],
) -> Result<Result<(), ItemRefusal>, ReadError> {
    let gets_entry = |index: &SecondaryIndex| {
        let is_its = |change: &EntryChange<'_, '_>| change.index.number == index.number;
        entries.iter().any(|change| is_its(change) && change.after.is_some())
    };
    refusal::check_put_beside(table, image.encoded(), gets_entry).map_err(damaged)
}

fn refused(refusal: ItemRefusal) -> Reply {
    if refusal.is_empty_key {
        Reply::EmptyIndexKey(refusal.text)
    } else {
        Reply::Invalid(refusal.text)
    }
}

/// Returns the names of the attributes that a write uses, sorted. All other attributes stay
/// encoded.
fn names_looked_at<'w>(write: &'w Write, table: &'w Table) -> Vec<&'w str> {
    let mut names: Vec<&str> = Vec::new();
    if let Some(condition) = &write.condition {
        names.reserve(NAMES_EXPECTED);
        names.extend(condition.paths().map(Path::root));
    }
    if let WriteAction::Update(update) = &write.action {
        names.extend(update.paths().map(Path::root));
        names.extend(refusal::names_looked_at(table, update));
    }
    names.sort_unstable();
    names.dedup();
    names
}

/// Returns the item after an update. `old` is the current item and its attributes that the write
/// uses. If `old` is `None`, the update starts from an item with only the key. Returns `None` if
/// the item does not exist and the update does not create it, or DynamoDB's message if the update
/// cannot be applied.
fn updated(
    update: &Update,
    old: Option<(&Image, &Item)>,
    key: &PrimaryKey,
    table: &Table,
) -> Result<Result<Option<Image>, ItemRefusal>, ReadError> {
    let invalid =
        |error: &UpdateError| ItemRefusal { text: error.to_string(), is_empty_key: false };
    let new = match old {
        Some((_, part)) => update.apply(part),
        None => update.apply_to_missing(&key.to_item(&table.key_schema)),
    };
    let new = match new {
        Ok(new) => new,
        Err(error) => return Ok(Err(invalid(&error))),
    };
    let image = match old {
        Some((image, part)) => image.with_part(part, &new)?,
        None => Image::made(&new),
    };
    if image.size() > ITEM_BYTES_MAX {
        return Ok(Err(invalid(&UpdateError::TooLarge)));
    }
    if new.values().any(|value| value.nesting_levels() > NESTING_LEVELS_MAX) {
        return Ok(Err(invalid(&UpdateError::TooDeep)));
    }
    let refusal = refusal::check_updated(table, update, old.map(|(_, part)| part), &new);
    if let Err(refusal) = refusal {
        return Ok(Err(refusal));
    }
    if let Err(refusal) = refusal::check_size(table, image.encoded()).map_err(damaged)? {
        return Ok(Err(refusal));
    }
    Ok(Ok((old.is_some() || update.creates_item()).then_some(image)))
}

/// Returns whether a condition holds for an item. A missing item is evaluated as an item without
/// attributes.
fn holds(condition: &Condition, item: Option<&Item>) -> bool {
    match item {
        Some(item) => condition.evaluate(item),
        None => condition.evaluate(&Item::new()),
    }
}

fn read_old(view: &dyn View, stored: &[u8]) -> Result<Option<Image>, ReadError> {
    let found = view.get(stored)?;
    found.map(|bytes| Image::stored(EncodedItem::from_stored(bytes))).transpose()
}

/// Replaces `old` with `new`. If the item did not change, writes nothing, not even a stream record.
/// `stored` is the storage key of the item.
fn replace(
    overlay: &mut Overlay<'_>,
    table: &Table,
    sequence: Sequence,
    now: EpochMillis,
    stored: Vec<u8>,
    change: &ItemChange<'_>,
    entries: Vec<EntryChange<'_, '_>>,
) -> Result<Written, ReadError> {
    let &ItemChange { key, old, new, .. } = change;
    let size = |image: Option<&Image>| image.map_or(0, Image::size);
    let mut written = Written { old_bytes: size(old), new_bytes: size(new), ..Written::default() };
    if old == new && !mutation::is_active(Mutation::RecordOfNothing) {
        return Ok(written);
    }
    let partition = table.partition_of(item::decode_token(&stored)?);
    count(overlay, table, partition, &stored, old, new)?;
    time_to_live::update_index(overlay, table, key, old, new)?;
    written.index_writes = upkeep::update_entries(overlay, table, key, entries)?;
    stream::write_record(overlay, table, partition, sequence, now, change)?;
    match new {
        Some(new) if old.is_none() => overlay.insert(stored, new.encoded().to_shared()),
        Some(new) => overlay.put(stored, new.encoded().to_shared()),
        None => overlay.delete(stored),
    }
    Ok(written)
}

/// Counts a change in the statistics of its partition. If an unfinished split has already counted
/// the item in its lower part, also updates the statistics of the lower part.
fn count(
    overlay: &mut Overlay<'_>,
    table: &Table,
    partition: usize,
    stored: &[u8],
    old: Option<&Image>,
    new: Option<&Image>,
) -> Result<(), ReadError> {
    let Some(partition) = table.partitions.get(partition) else {
        return Ok(());
    };
    let of = |image: Option<&Image>| {
        Statistics::of_one(image.map(|image| u64::try_from(image.size()).unwrap_or(u64::MAX)))
    };
    let (old, new) = (of(old), of(new));
    if old == new {
        return Ok(());
    }
    let counted = partition.split.as_ref().filter(|split| split.has_counted(stored));
    for number in [Some(partition.number), counted.map(|split| split.lower)].into_iter().flatten() {
        let before = statistics::read(overlay, table.id, number)?;
        statistics::write(overlay, table.id, number, &before.with_replaced(old, new))?;
    }
    Ok(())
}
