//! `weir versions backfill`: writes the first version of every item of a table that has no history.
//!
//! The command is idempotent, because it never changes existing histories. It may run concurrently
//! with the function, or be interrupted and run again. The first version is a base: the item as it
//! was read. The first change in the stream contains the previous item, which then becomes the
//! base.
//!
//! The time of a base is taken after the read of its page. If the item changed between the read and
//! that time, the change is in the stream and corrects the base. An item that does not fit into a
//! version is reported and left out.

use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsError;
use aws_sdk_dynamodb::types::{Put, TransactWriteItem};
use futures::{TryStreamExt, stream};
use model::{Item, KeyAttributeType};
use rules::versions::{
    Head, ITEM_ATTRIBUTE, Version, fits_into_a_version, history_key, is_refused_for_size,
};
use serde_json::json;

use super::reading::stored_head;
use super::{Place, absent};
use client::attribute::{from_sdk_item, to_sdk_item};
use client::contention::{Attempts, NotApplied, why_not_applied};
use client::failure::{Context, Failure, Result};
use client::interruption;
use client::output::{Output, counted};
use client::sdk_error::is_not_found;
use client::table_description::key_attributes;

/// Number of concurrent transactions.
const WRITERS: usize = 32;

/// Maximum number of left-out items in the report.
const NAMED_MAX: usize = 10;

/// The result of a backfill.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Report {
    items: u64,
    begun: u64,
    /// Number of items that do not fit into a version and were left out.
    left_out: u64,
    /// The first left-out items, each with the reason.
    named: Vec<String>,
}

/// The result of one item.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Outcome {
    Begun,
    WasThere,
    /// The item needs a history, but this is a dry run.
    NotWritten,
    LeftOut(String),
}

impl Report {
    /// Returns true if every item has a history or, for a dry run, would get a history.
    pub(super) fn is_whole(&self) -> bool {
        self.left_out == 0
    }

    fn add(&mut self, outcome: Outcome) {
        self.items += 1;
        match outcome {
            Outcome::Begun => self.begun += 1,
            Outcome::WasThere | Outcome::NotWritten => {}
            Outcome::LeftOut(what) => {
                self.left_out += 1;
                if self.named.len() < NAMED_MAX {
                    self.named.push(what);
                }
            }
        }
    }

    pub(super) fn text(&self, output: Output, dry_run: bool) -> String {
        let Self { items, begun, left_out, named } = self;
        if output != Output::Table {
            return format!(
                "{}\n",
                json!({
                    "schema": "weir.versions.backfill/v1", "items": items, "begun": begun,
                    "left_out": left_out, "samples": named, "dry_run": dry_run,
                })
            );
        }
        let mut text = if dry_run {
            format!("{}; nothing was written\n", counted(items, "item", "items"))
        } else {
            format!(
                "{}, {}, {} existed already\n",
                counted(items, "item", "items"),
                counted(begun, "history begun", "histories begun"),
                items - begun - left_out
            )
        };
        if *left_out > 0 {
            let items = counted(left_out, "item gets", "items get");
            text.push_str(&format!("{items} no history, for example:\n"));
            named.iter().for_each(|what| text.push_str(&format!("  {what}\n")));
        }
        text
    }
}

/// Scans the table, and begins the missing histories.
///
/// # Errors
/// When a table cannot be read or written. Histories that were already begun remain; the same
/// command resumes the backfill.
pub(super) async fn run(place: &Place, dry_run: bool) -> Result<Report> {
    // If the table of histories is missing, this check fails before a page of items is read.
    let histories = place.client.describe_table().table_name(&place.history).send().await;
    if let Err(error) = histories
        && is_not_found(&error)
    {
        return Err(absent::no_table(place, error.into()).await);
    }
    let keys = key_attributes(&place.client, &place.table).await?;
    let doing = || format!("cannot read table `{}`", place.table);
    let progress = interruption::progress_bar(None, "{elapsed} {msg}", "");
    let scan = place.client.scan().table_name(&place.table).consistent_read(true);
    let pages = scan.into_paginator().send();
    let items = stream::unfold(pages, async |mut pages| {
        let page = pages.next().await?.context(doing);
        // All items of a page get the same time, which is taken after the read.
        let now = place.now().await;
        let items = page.map(|page| page.items.unwrap_or_default().into_iter());
        Some((items.map(|items| stream::iter(items.map(move |item| Ok((item, now))))), pages))
    });
    let outcomes = items.try_flatten().map_ok(|(item, now)| {
        let item = from_sdk_item(item).context(doing);
        let keys = &keys;
        async move {
            let item = item?;
            let text = key_text(keys, &item);
            if let Err(reason) = fits_into_a_version(&text, Some(&item)) {
                return Ok(Outcome::LeftOut(format!("{text}: {reason}")));
            }
            if dry_run { Ok(Outcome::NotWritten) } else { begin(place, text, item, now).await }
        }
    });
    let report = outcomes
        .try_buffer_unordered(WRITERS)
        .try_fold(Report::default(), async |mut report, outcome| {
            report.add(outcome);
            progress.set_message(format!(
                "{} of {} begun",
                report.begun,
                counted(report.items, "item", "items")
            ));
            Ok(report)
        })
        .await;
    progress.finish_and_clear();
    report
}

/// Returns the key of the item's history.
pub(super) fn key_text(keys: &[(String, KeyAttributeType)], item: &Item) -> String {
    let key: Item =
        keys.iter().filter_map(|(name, _)| Some((name.clone(), item.get(name)?.clone()))).collect();
    history_key(&key)
}

/// Begins the history of an item if the item has no history. The item had this state at `now`; the
/// time at which it got this state is unknown.
async fn begin(place: &Place, text: String, item: Item, now: u64) -> Result<Outcome> {
    // This read saves cost, because a cancelled transaction costs as much as a successful
    // transaction.
    if stored_head(place, &text).await?.is_some() {
        return Ok(Outcome::WasThere);
    }
    let put =
        |item: Item| Put::builder().table_name(&place.history).set_item(Some(to_sdk_item(&item)));
    let head = put(Head::of_base().to_item(&text))
        .condition_expression("attribute_not_exists(#item)")
        .expression_attribute_names("#item", ITEM_ATTRIBUTE)
        .build()?;
    let base = Version { at_seconds: Some(now), ..Version::base(item) };
    let base = put(base.to_item(&text)).build()?;
    let request = place
        .client
        .transact_write_items()
        .transact_items(TransactWriteItem::builder().put(head).build())
        .transact_items(TransactWriteItem::builder().put(base).build());
    let mut attempts = Attempts::first();
    loop {
        let Err(error) = request.clone().send().await else { return Ok(Outcome::Begun) };
        let why = why_not_applied(&error);
        // After an unknown result, a head shows that the transaction was applied.
        if matches!(why, NotApplied::Changed | NotApplied::Otherwise)
            && stored_head(place, &text).await?.is_some()
        {
            return Ok(Outcome::WasThere);
        }
        if let Some(reason) = refused_for_size(&error) {
            return Ok(Outcome::LeftOut(format!("{text}: {reason}")));
        }
        if !attempts.after(why).await {
            return Err(Failure::from(error).with(|reason| {
                format!(
                    "cannot begin the history of {text}: {reason}; run the command again to resume"
                )
            }));
        }
    }
}

/// Returns DynamoDB's message if DynamoDB rejects a base because of its size. DynamoDB may count
/// more bytes than this code.
fn refused_for_size(error: &SdkError<TransactWriteItemsError>) -> Option<String> {
    let failed = error.as_service_error()?;
    let TransactWriteItemsError::TransactionCanceledException(cancelled) = failed else {
        let message = failed.message().filter(|message| is_refused_for_size(message));
        return message.map(str::to_owned);
    };
    let reasons = cancelled.cancellation_reasons().iter();
    let mut refused = reasons.filter(|reason| reason.code() == Some("ValidationError"));
    let message = refused.next()?.message()?;
    is_refused_for_size(message).then(|| message.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_too_large_for_a_version_are_named() {
        let mut report = Report::default();
        for outcome in [Outcome::Begun, Outcome::WasThere, Outcome::Begun] {
            report.add(outcome);
        }
        assert!(report.is_whole());
        assert_eq!(
            report.text(Output::Table, false),
            "3 items, 2 histories begun, 1 existed already\n"
        );
        report.add(Outcome::LeftOut("a: it is too large".to_owned()));
        assert!(!report.is_whole());
        assert_eq!(
            report.text(Output::Table, false),
            "4 items, 2 histories begun, 1 existed already\n1 item gets no history, for example:\n  a: it is too large\n"
        );
        for number in 0..2 * NAMED_MAX {
            report.add(Outcome::LeftOut(number.to_string()));
        }
        let json = report.text(Output::Json, true);
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!((json["left_out"].clone(), json["items"].clone()), (json!(21), json!(24)));
        assert_eq!(json["samples"].as_array().unwrap().len(), NAMED_MAX);
    }
}
