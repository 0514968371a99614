//! The code that an application needs while `weir migrate` moves its table. Copy this file;
//! docs/migration.md explains it.
//!
//! `Route::new(&client, "weir-migrations", "shop", KEEP).write().await?` is `source` or `target`, and
//! `insert(&client, table, item, keys, "total")?.send().await?` writes there. Table, item and keys are
//! those of the side, such as `("orders", &["orderID"])` and `("shop", &["pk", "sk"])`.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use aws_sdk_dynamodb::operation::put_item::builders::PutItemFluentBuilder;
use aws_sdk_dynamodb::types::AttributeValue;
use aws_sdk_dynamodb::{Client, Error};
use tokio::sync::Mutex;

/// Attributes by name.
pub type Item = HashMap<String, AttributeValue>;

/// Half of the default of a plan's `gate_seconds`.
pub const KEEP: Duration = Duration::from_secs(1);

/// The route of a migration, cached for `keep` since the request for it: half of the plan's
/// `gate_seconds`. The time-out of a write, including retries, must be below the other half. Methods
/// return an error of the request to the caller.
pub struct Route {
    client: Client,
    control: String,
    migration: String,
    keep: Duration,
    known: Mutex<Option<(Instant, Item)>>,
}

impl Route {
    /// Returns a route without requesting it yet.
    pub fn new(client: &Client, control: &str, migration: &str, keep: Duration) -> Self {
        let (control, migration) = (control.to_owned(), migration.to_owned());
        Self { client: client.clone(), control, migration, keep, known: Mutex::default() }
    }

    /// Returns `source` or `target`.
    pub async fn read(&self) -> Result<String, Error> {
        self.side("read").await
    }

    /// Returns `source` or `target`. Waits while a switch blocks writers, usually a few seconds.
    pub async fn write(&self) -> Result<String, Error> {
        loop {
            let side = self.side("write").await?;
            if side != "none" {
                return Ok(side);
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
            *self.known.lock().await = None;
        }
    }

    async fn side(&self, usage: &str) -> Result<String, Error> {
        let text = |text: &str| AttributeValue::S(text.to_owned());
        let mut known = self.known.lock().await;
        loop {
            if let Some((_, sides)) = known.as_ref().filter(|(at, _)| at.elapsed() <= self.keep) {
                let side = sides.get(usage).and_then(|side| side.as_s().ok()).cloned();
                return Ok(side.unwrap_or_else(|| "source".to_owned()));
            }
            let asked = Instant::now();
            let request = self.client.get_item().table_name(&self.control).consistent_read(true);
            let request = request.key("migration", text(&self.migration));
            let answer = request.key("entry", text("ROUTE")).send().await?;
            *known = Some((asked, answer.item.unwrap_or_default()));
        }
    }
}

/// Returns an item as the application wrote it, or `None` for a tombstone. `keys` are its key attributes.
pub fn visible(mut item: Item, keys: &[&str]) -> Option<Item> {
    let mark = item.remove("_weir");
    let gone = mark.as_ref().and_then(|mark| mark.as_m().ok()?.get("gone")?.as_bool().ok());
    let is_bare = item.keys().all(|name| keys.contains(&name.as_str()));
    (gone != Some(&true) || !is_bare).then_some(item)
}

/// Returns a PutItem that overwrites nothing but a tombstone. `keys` are the key attributes of this
/// table: with those of another table, the insert would overwrite. `always` is an attribute that every
/// item of the table has in addition to its `keys`, even an item that an UpdateItem created.
pub fn insert(
    client: &Client,
    table: &str,
    item: Item,
    keys: &[&str],
    always: &str,
) -> Result<PutItemFluentBuilder, String> {
    if keys.contains(&always) || !item.contains_key(always) {
        return Err(format!("`{always}` must be an attribute of the item beside its key"));
    }
    if let Some(key) = keys.iter().find(|key| !item.contains_key(**key)) {
        let keys = format!("`keys` are the key attributes of `{table}`");
        return Err(format!("`{key}` must be an attribute of the item: {keys}"));
    }
    let is_tombstone = "#mark.#gone = :true AND attribute_not_exists(#always)";
    let put = client.put_item().table_name(table).set_item(Some(item));
    Ok(put
        .condition_expression(format!("attribute_not_exists(#key) OR ({is_tombstone})"))
        .expression_attribute_names("#key", keys.first().copied().unwrap_or_default())
        .expression_attribute_names("#mark", "_weir")
        .expression_attribute_names("#gone", "gone")
        .expression_attribute_names("#always", always)
        .expression_attribute_values(":true", AttributeValue::Bool(true)))
}
