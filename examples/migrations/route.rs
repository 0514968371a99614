//! What an application does while `weir migrate` moves its table: it asks which side to use, passes over
//! tombstones, and inserts where a tombstone stands. Copy this file; docs/migration.md explains it.
//!
//! `Route::new(&client, "weir-migrations", "shop", Duration::from_secs(1)).write().await?` is `source`
//! or `target`; `insert(&client, table, item, &["pk", "sk"]).send().await?` writes there.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use aws_sdk_dynamodb::operation::put_item::builders::PutItemFluentBuilder;
use aws_sdk_dynamodb::types::AttributeValue;
use aws_sdk_dynamodb::{Client, Error};
use tokio::sync::Mutex;

/// Attributes by name.
pub type Item = HashMap<String, AttributeValue>;

/// The route of a migration, asked for at most once in `keep`. Keep that at half of the plan's
/// `gate_seconds`, and the time-out of a write below the other half: a write must end before its route
/// is too old.
pub struct Route {
    client: Client,
    control: String,
    migration: String,
    keep: Duration,
    known: Mutex<Option<(Instant, Item)>>,
}

impl Route {
    /// Asks for nothing yet.
    pub fn new(client: &Client, control: &str, migration: &str, keep: Duration) -> Self {
        let (control, migration) = (control.to_owned(), migration.to_owned());
        Self { client: client.clone(), control, migration, keep, known: Mutex::default() }
    }

    /// Returns `source` or `target`.
    pub async fn read(&self) -> Result<String, Error> {
        self.side("read").await
    }

    /// Returns `source` or `target`; waits while a switch blocks writers, usually for seconds.
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
        let mut known = self.known.lock().await;
        let entry = match known.take().filter(|(asked, _)| asked.elapsed() <= self.keep) {
            Some(entry) => entry,
            None => {
                let asked = Instant::now();
                let text = |text: &str| AttributeValue::S(text.to_owned());
                let request = self.client.get_item().table_name(&self.control);
                let request = request.key("migration", text(&self.migration));
                let request = request.key("entry", text("ROUTE")).consistent_read(true);
                (asked, request.send().await?.item.unwrap_or_default())
            }
        };
        let side = entry.1.get(usage).and_then(|side| side.as_s().ok()).cloned();
        *known = Some(entry);
        Ok(side.unwrap_or_else(|| "source".to_owned()))
    }
}

/// Returns an item as the application wrote it, or `None` for a tombstone. `keys` are its key attributes.
pub fn visible(mut item: Item, keys: &[&str]) -> Option<Item> {
    let mark = item.remove("_weir");
    let gone = mark.as_ref().and_then(|mark| mark.as_m().ok()?.get("gone")?.as_bool().ok());
    let is_bare = item.keys().all(|name| keys.contains(&name.as_str()));
    (gone != Some(&true) || !is_bare).then_some(item)
}

/// Returns a PutItem that overwrites nothing but a tombstone: its condition replaces
/// `attribute_not_exists(pk)`. `keys` are the key attributes of the table.
pub fn insert(client: &Client, table: &str, item: Item, keys: &[&str]) -> PutItemFluentBuilder {
    let own = item.keys().filter(|name| !keys.contains(&name.as_str())).cloned();
    let mut put = client.put_item().table_name(table);
    let mut bare = "#mark.#gone = :true".to_owned();
    for (number, name) in own.enumerate() {
        bare.push_str(&format!(" AND attribute_not_exists(#own{number})"));
        put = put.expression_attribute_names(format!("#own{number}"), name);
    }
    put.set_item(Some(item))
        .condition_expression(format!("attribute_not_exists(#key) OR ({bare})"))
        .expression_attribute_names("#key", keys.first().copied().unwrap_or_default())
        .expression_attribute_names("#mark", "_weir")
        .expression_attribute_names("#gone", "gone")
        .expression_attribute_values(":true", AttributeValue::Bool(true))
}
