//! `weir versions backfill`: gives every item of a table that has no history yet its first version.
//!
//! A history that exists is never touched, so this may run beside the function, twice, or be
//! stopped and begun again. What it writes is a base: the first change that comes through the
//! stream says itself what the item was before it, and replaces the base if it knows better.

use aws_sdk_dynamodb::types::{AttributeValue as SdkValue, Put, TransactWriteItem};
use futures::{StreamExt, TryStreamExt, stream};
use indicatif::{ProgressBar, ProgressStyle};
use model::{Item, KeyAttributeType};
use rules::Stamp;
use rules::versions::{Head, ITEM_ATTRIBUTE, Version, history_key};
use serde_json::json;

use super::Place;
use crate::load::{error_text, from_sdk_item, key_attributes, to_sdk_item};
use crate::output::Output;

/// Transactions that are under way at the same time.
const WRITERS: usize = 32;

/// What was found and done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Report {
    items: u64,
    begun: u64,
}

impl Report {
    pub(super) fn text(self, output: Output, dry_run: bool) -> String {
        let Self { items, begun } = self;
        match output {
            Output::Table if dry_run => format!("{items} items; nothing was written\n"),
            Output::Table => {
                format!("{items} items, {begun} histories begun, {} were there\n", items - begun)
            }
            _ => format!(
                "{}\n",
                json!({"schema": "weir.versions.backfill/v1", "items": items, "begun": begun, "dry_run": dry_run})
            ),
        }
    }
}

/// Scans the table and begins the histories that are not there.
///
/// # Errors
/// What could not be read or written. What was begun before stays; run it again.
pub(super) async fn run(place: &Place, dry_run: bool) -> Result<Report, String> {
    let keys = key_attributes(&place.client, &place.table).await?;
    let progress = ProgressBar::new_spinner().with_style(
        ProgressStyle::with_template("{elapsed} {msg}")
            .unwrap_or_else(|_| ProgressStyle::default_spinner()),
    );
    let scan = place.client.scan().table_name(&place.table).consistent_read(true);
    let items = scan.into_paginator().items().send();
    let items = stream::unfold(items, async |mut items| Some((items.next().await?, items)));
    let begun = items.map(|item| async {
        let item = item.map_err(|error| error_text(&error)).and_then(from_sdk_item);
        let item = item.map_err(|error| format!("cannot read table `{}`: {error}", place.table))?;
        if dry_run { Ok::<bool, String>(false) } else { begin(place, &keys, item).await }
    });
    let report = begun
        .buffer_unordered(WRITERS)
        .try_fold(Report::default(), async |mut report, begun| {
            report.items += 1;
            report.begun += u64::from(begun);
            progress
                .set_message(format!("{} items, {} histories begun", report.items, report.begun));
            Ok(report)
        })
        .await;
    progress.finish_and_clear();
    report
}

/// Begins the history of an item; answers whether there was none.
async fn begin(
    place: &Place,
    keys: &[(String, KeyAttributeType)],
    item: Item,
) -> Result<bool, String> {
    let key: Item =
        keys.iter().filter_map(|(name, _)| Some((name.clone(), item.get(name)?.clone()))).collect();
    let text = history_key(&key);
    let head = Head { latest: 1, first: 1, stamp: Stamp::lowest(), revision: 1 };
    let put =
        |item: Item| Put::builder().table_name(&place.history).set_item(Some(to_sdk_item(&item)));
    let failed = |reason: String| format!("cannot begin the history of {text}: {reason}");
    let head = put(head.to_item(&text))
        .condition_expression("attribute_not_exists(#item)")
        .expression_attribute_names("#item", ITEM_ATTRIBUTE)
        .build()
        .map_err(|error| failed(error.to_string()))?;
    let base = put(Version::base(item).to_item(&text)).build();
    let base = base.map_err(|error| failed(error.to_string()))?;
    let request = place
        .client
        .transact_write_items()
        .transact_items(TransactWriteItem::builder().put(head).build())
        .transact_items(TransactWriteItem::builder().put(base).build());
    match request.send().await {
        Ok(_) => Ok(true),
        // Cancelled because there is a head; anything else that cancels must be seen.
        Err(error) => match has_head(place, &text).await {
            Ok(true) => Ok(false),
            _ => Err(failed(error_text(&error))),
        },
    }
}

async fn has_head(place: &Place, item: &str) -> Result<bool, String> {
    let request = place.client.get_item().table_name(&place.history).consistent_read(true);
    let answer = request
        .key(ITEM_ATTRIBUTE, SdkValue::S(item.to_owned()))
        .key("version", SdkValue::S(rules::versions::HEAD_VERSION.to_owned()))
        .send()
        .await
        .map_err(|error| error_text(&error))?;
    Ok(answer.item.is_some())
}
