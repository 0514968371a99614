//! Replays records that the event source mapping no longer delivers, for example because it
//! discarded them.
//!
//! Even if a target equals its source, a lost record must be replayed, because an older record may
//! still be in flight and change the target. Merging effects is commutative and idempotent, so any
//! process may replay a record late.

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::Put;
use control::{Expect, Tombstone};
use model::Item;
use model::json::item_to_string;
use rules::migration::{MARK, Migration, Registers, Target, said_by_all};

use crate::migrate::control_table::Control;
use crate::migrate::failure::{Result, fatal};
use crate::migrate::plan::tables;
use client::attribute::{to_sdk_item, to_sdk_value};

/// Seconds after which a record counts as lost. An event source mapping that works applies records
/// much earlier. If a mapping is only slow, the replay does no harm.
pub(crate) const LOST_SECONDS: i64 = 60;
/// Maximum attempts to write a target that other writers change at the same time.
const ATTEMPTS_MAX: u32 = 20;

/// Applies a record's effect to a target, if the migration's state is the expected one. Returns
/// true if the target had to be written. Leaves items that the migration did not write unchanged.
///
/// # Errors
/// When the state is not the expected one, or a table cannot be read or written.
pub(crate) async fn say_again(
    control: &Control,
    expect: Expect<'_>,
    (migration, there): (&Migration, Option<&Migration>),
    (target, said): (&Target, &Registers),
) -> Result<bool> {
    let schema = migration.schema(&target.table);
    let schema = schema.ok_or_else(|| format!("the plan has no table `{}`", target.table))?;
    let key = target.key.to_item(schema);
    for _ in 0..ATTEMPTS_MAX {
        let stands = tables::get(&control.client, &target.table, &key).await?;
        let known = match stands.as_ref().map(|item| (item, Registers::from_item(item))) {
            None => Registers::default(),
            Some((_, Ok(known))) => known,
            // In the reverse direction, an item without a mark has no applied effect yet.
            Some((item, Err(_))) if target.adopts && !item.contains_key(MARK) => match there {
                Some(there) => adopted(&control.client, (migration, there), target, item).await?,
                None => Registers::default(),
            },
            Some((_, Err(_))) => return Ok(false),
        };
        let Some(joined) = known.joined(said) else { return Ok(false) };
        if joined.is_tombstone() {
            note(control, target, &key, &joined).await?;
        }
        let item = joined.to_item(&key);
        let partition = schema.partition.name.as_str();
        let put = put(&target.table, partition, &item, stands.as_ref())?;
        // The write checks the migration's state. After a switch by another command, a client may
        // have deleted the target, and the target must not be restored.
        if control.put_elsewhere(migration.name(), expect, put).await? {
            return Ok(true);
        }
    }
    Err(fatal!(
        "an item of `{}` was not written, because of concurrent writes; run the command again",
        target.table
    ))
}

/// Returns the initial registers for an item without a mark, in the reverse direction. The
/// registers are derived from the existing items that `inverse` converts into this item.
async fn adopted(
    client: &Client,
    (migration, there): (&Migration, &Migration),
    target: &Target,
    item: &Item,
) -> Result<Registers> {
    let mut known = Vec::new();
    for origin in migration.origins(there, target, item) {
        let Some(schema) = migration.schema(&origin.table) else { continue };
        if let Some(stands) =
            tables::get(client, &origin.table, &origin.key.to_item(schema)).await?
        {
            known.push(migration.adopted(target, &origin, &stands));
        }
    }
    Ok(said_by_all(known))
}

/// Records a tombstone in the control table before the tombstone is written, as the function
/// `migration` does.
async fn note(control: &Control, target: &Target, key: &Item, joined: &Registers) -> Result<()> {
    let Some(stamp) = joined.iter().map(|(_, register)| &register.stamp).max() else {
        return Ok(());
    };
    let (key, stamp) = (item_to_string(key), stamp.as_str());
    control.put(&Tombstone::new(&target.migration, &target.table, &key, stamp)).await
}

/// Returns a `Put` of an item, on the condition that the stored item still equals `found`.
fn put(table: &str, partition: &str, item: &Item, found: Option<&Item>) -> Result<Put> {
    let request = Put::builder().table_name(table).set_item(Some(to_sdk_item(item)));
    let request = match found.and_then(|item| item.get(MARK)) {
        Some(mark) => request
            .condition_expression("#mark = :mark")
            .expression_attribute_names("#mark", MARK)
            .expression_attribute_values(":mark", to_sdk_value(mark)),
        None => {
            let request = request.expression_attribute_names("#key", partition);
            match found {
                None => request.condition_expression("attribute_not_exists(#key)"),
                Some(_) => request
                    .condition_expression("attribute_exists(#key) AND attribute_not_exists(#mark)")
                    .expression_attribute_names("#mark", MARK),
            }
        }
    };
    Ok(request.build().map_err(|error| error.to_string())?)
}
