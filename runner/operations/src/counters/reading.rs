//! The three ways to read a counter, with different costs and guarantees.
//!
//! This module writes nothing.

use std::collections::{BTreeMap, BTreeSet};

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::types::{
    AttributeValue as SdkValue, Get, KeysAndAttributes, TransactGetItem,
};
use model::limits::{BATCH_GET_KEYS_MAX, TRANSACTION_OPERATIONS_MAX};
use model::{Item, Number};
use rules::Stamp;
use rules::counters::reconcile::{decide, slots_needed};
use rules::counters::{Counters, Total};

use super::flags::TotalFlags;
use super::{Place, ReadMode};
use client::attribute::from_sdk_item;
use client::contention::{Attempts, is_contended};
use client::failure::{Context, Failure, Result, fatal};
use client::sdk_error::error_text;

/// Maximum number of read rounds. Each round reads the keys that a throttled table has left
/// unprocessed.
const ROUNDS_MAX: u32 = 10;

/// The result of a read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reading {
    pub(super) total: Number,
    /// Number of existing slots.
    pub(super) slots: usize,
    /// The stamp of the last stream record that the total includes; `None` when slots were read.
    pub(super) as_of: Option<String>,
    /// True if a total item was read and exists.
    pub(super) has_total: bool,
    /// The attribute `total` of the total item, if it differs from the sum of the item's slots.
    pub(super) otherwise: Option<String>,
}

impl Reading {
    /// Returns the result of a read of slots.
    fn of_slots(total: Number, slots: usize, has_total: bool) -> Self {
        Self { total, slots, as_of: None, has_total, otherwise: None }
    }
}

/// Reads a counter.
///
/// # Errors
/// When a table cannot be read, or an item is not a counter.
pub(super) async fn read(
    place: &Place,
    totals: &TotalFlags,
    counter: &str,
    how: ReadMode,
) -> Result<Reading> {
    match how {
        ReadMode::RolledUp => {
            let item = item_of(&place.client, totals, counter).await?;
            let total = total_in(item.as_ref(), counter)?;
            // A total has no stamp before it includes a stream record.
            let as_of = total.cells.as_of().filter(|stamp| stamp.base() != Stamp::lowest());
            Ok(Reading {
                total: total.cells.sum(),
                slots: total.cells.slots_there(),
                as_of: as_of.map(ToString::to_string),
                has_total: item.is_some(),
                otherwise: item.and_then(|item| total.said_otherwise(&item)),
            })
        }
        ReadMode::Exact => {
            let slots = 0..place.rule.slot_count;
            let slots = slots.filter(|slot| Counters::can_have_slot(counter, *slot)).collect();
            let values = at_one_moment(place, counter, slots).await?;
            Ok(Reading::of_slots(sum(values.values())?, values.len(), false))
        }
        ReadMode::Fresh => {
            // The total is read first, so that the slots are at least as new.
            let item = item_of(&place.client, totals, counter).await?;
            let total = total_in(item.as_ref(), counter)?;
            let mut slots = slots_needed(&total, place.rule.slot_count);
            slots.retain(|slot| Counters::can_have_slot(counter, *slot));
            let values = each(place, counter, slots).await?;
            // Only the values are needed. The times at which slots were deleted do not matter.
            let cells = decide(&total, &values, &BTreeSet::new(), 0);
            let total = total.joined(&cells).unwrap_or(total);
            Ok(Reading::of_slots(total.cells.sum(), values.len(), item.is_some()))
        }
    }
}

fn sum<'n>(values: impl Iterator<Item = &'n Number>) -> Result<Number> {
    let mut sum = Number::ZERO;
    for value in values {
        sum = sum.checked_add(*value).map_err(|error| fatal!("cannot sum the slots: {error}"))?;
    }
    Ok(sum)
}

/// Reads the total of a counter; a missing item is an empty total.
///
/// # Errors
/// When the total cannot be read.
pub(super) async fn total_of(client: &Client, totals: &TotalFlags, counter: &str) -> Result<Total> {
    total_in(item_of(client, totals, counter).await?.as_ref(), counter)
}

fn total_in(item: Option<&Item>, counter: &str) -> Result<Total> {
    let total = item.map_or_else(|| Ok(Total::default()), Total::from_item);
    total.map_err(|error| fatal!("cannot read the total of `{counter}`: {error}"))
}

async fn item_of(client: &Client, totals: &TotalFlags, counter: &str) -> Result<Option<Item>> {
    let request = client.get_item().table_name(&totals.totals_table).consistent_read(true);
    let answer = request.key(&totals.total_key, SdkValue::S(counter.to_owned())).send().await;
    let item = answer.map_err(|error| {
        let flags =
            Flags { table: "--totals-table", known: &totals.totals_table, key: "--total-key" };
        flags.advise(error).about(format!("cannot read the total of `{counter}`"))
    })?;
    item.item.map(from_sdk_item).transpose()
}

/// The flags that name a table and its key, and the table's current name.
struct Flags<'t> {
    table: &'static str,
    known: &'t str,
    key: &'static str,
}

impl Flags<'_> {
    /// Returns the failure of a request, with the advice of [`Self::advice`].
    fn advise<E>(&self, error: SdkError<E>) -> Failure
    where
        E: std::error::Error + ProvideErrorMetadata + 'static,
    {
        let advice = self.advice(&error);
        Failure::from(error).with(|text| format!("{text}{advice}"))
    }

    /// Returns advice for the end of an error message, if the cause may be a missing table or a
    /// different key.
    fn advice(&self, error: &impl ProvideErrorMetadata) -> String {
        let Self { table, known, key } = self;
        // A cancelled transaction has its reasons in its message.
        let is_refused = error.message().is_some_and(|said| said.contains("ValidationError"));
        match error.code() {
            Some("ResourceNotFoundException") => {
                format!("; name the table with {table}, for example {table} dev-{known}")
            }
            code if is_refused || code == Some("ValidationException") => {
                format!(
                    "; if the key of `{known}` has another name, name it with {key}, for example {key} id"
                )
            }
            _ => String::new(),
        }
    }
}

fn slot_flags(place: &Place) -> Flags<'_> {
    Flags { table: "--slots-table", known: &place.slots_table, key: "--slot-key" }
}

fn value(place: &Place, key: &str, item: &Item) -> Result<Number> {
    place.rule.value_of_slot(item).map_err(|refusal| {
        fatal!(
            "slot `{key}`: {refusal}; if an attribute other than `{}` has the votes, name it with --slot-value, for example --slot-value count",
            place.rule.slot_value
        )
    })
}

/// Reads all slots in one transaction, so that all values are from the same point in time.
async fn at_one_moment(
    place: &Place,
    counter: &str,
    slots: BTreeSet<u32>,
) -> Result<BTreeMap<u32, Number>> {
    if slots.len() > TRANSACTION_OPERATIONS_MAX {
        return Err(fatal!(
            "an exact read can read {TRANSACTION_OPERATIONS_MAX} slots, but the counter has {}; use --how fresh, or fold the slots (`weir counters fold`)",
            slots.len()
        ));
    }
    let mut request = place.client.transact_get_items();
    for slot in &slots {
        let key = SdkValue::S(Counters::slot_key_text(counter, *slot));
        let get = Get::builder().table_name(&place.slots_table).key(&place.rule.slot_key, key);
        let get = get.build()?;
        request = request.transact_items(TransactGetItem::builder().get(get).build());
    }
    let mut attempts = Attempts::first();
    let answer = loop {
        let error = match request.clone().send().await {
            Ok(answer) => break answer,
            Err(error) => error,
        };
        let reason = error_text(&error);
        if !is_contended(error.code(), &reason) {
            return Err(slot_flags(place).advise(error).about("cannot read the slots"));
        }
        // A vote conflicted with the read: the transaction fails if a slot changes while it reads.
        if !attempts.next().await {
            return Err(Failure::Retry(format!(
                "votes arrive too fast for a consistent read: {reason}; use --how fresh"
            )));
        }
    };
    let mut values = BTreeMap::new();
    for (slot, response) in slots.into_iter().zip(answer.responses.unwrap_or_default()) {
        if let Some(item) = response.item.filter(|item| !item.is_empty()) {
            let key = Counters::slot_key_text(counter, slot);
            values.insert(slot, value(place, &key, &from_sdk_item(item)?)?);
        }
    }
    Ok(values)
}

/// Reads each slot strongly consistently. The values may be from different points in time.
async fn each(place: &Place, counter: &str, slots: BTreeSet<u32>) -> Result<BTreeMap<u32, Number>> {
    let by_key: BTreeMap<String, u32> =
        slots.into_iter().map(|slot| (Counters::slot_key_text(counter, slot), slot)).collect();
    let mut wanted: Vec<String> = by_key.keys().cloned().collect();
    let mut values = BTreeMap::new();
    let mut rounds = 0;
    while !wanted.is_empty() {
        let rest = wanted.split_off(wanted.len().min(BATCH_GET_KEYS_MAX));
        let (found, left) = some(place, &wanted).await?;
        for (key, item) in found {
            let Some(slot) = by_key.get(&key) else { continue };
            values.insert(*slot, value(place, &key, &item)?);
        }
        if !left.is_empty() {
            rounds += 1;
            if rounds > ROUNDS_MAX {
                return Err(Failure::Retry(
                    "cannot read the slots: the table is throttled; run the command again"
                        .to_owned(),
                ));
            }
            tokio::time::sleep(std::time::Duration::from_millis(20) * 2u32.pow(rounds)).await;
        }
        wanted = left.into_iter().chain(rest).collect();
    }
    Ok(values)
}

async fn some(place: &Place, keys: &[String]) -> Result<(Vec<(String, Item)>, Vec<String>)> {
    let name = &place.rule.slot_key;
    let requests = keys.iter().map(|key| [(name.clone(), SdkValue::S(key.clone()))].into());
    let request = KeysAndAttributes::builder().set_keys(Some(requests.collect()));
    let request = request.consistent_read(true).build()?;
    let answer = place.client.batch_get_item().request_items(&place.slots_table, request).send();
    let answer = answer.await.map_err(|error| slot_flags(place).advise(error));
    let answer = answer.context(|| "cannot read the slots")?;
    let key_of = |item: &std::collections::HashMap<String, SdkValue>| {
        item.get(name).and_then(|key| key.as_s().ok()).cloned().unwrap_or_default()
    };
    let found = answer.responses.into_iter().flatten().flat_map(|(_, items)| items);
    let found = found.map(|item| Ok((key_of(&item), from_sdk_item(item)?)));
    let left = answer.unprocessed_keys.into_iter().flatten().flat_map(|(_, keys)| keys.keys);
    Ok((found.collect::<Result<_>>()?, left.map(|key| key_of(&key)).collect()))
}

#[cfg(test)]
mod tests {
    use model::limits::PARTITION_KEY_BYTES_MAX;
    use tokio::net::TcpListener;

    use super::super::testing::{place, serve, totals};
    use super::*;

    #[tokio::test]
    async fn an_exact_read_waits_for_the_votes_that_are_under_way() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let place = place(&format!("http://{}", listener.local_addr().unwrap()));
        let cancelled = |reason: &str| {
            format!(
                r##"{{"__type":"com.amazonaws.dynamodb.v20120810#TransactionCanceledException","Message":"Transaction cancelled, please refer cancellation reasons for specific reasons [None, {reason}, None, None]"}}"##
            )
        };
        let conflict = cancelled("TransactionConflict");
        let invalid = cancelled("ValidationError");
        let slots =
            r#"{"Responses":[{"Item":{"votes":{"N":"5"}}},{},{"Item":{"votes":{"N":"-2"}}},{}]}"#;
        let answers = [
            (400, conflict.as_str(), false),
            (400, conflict.as_str(), false),
            (200, slots, false),
            (400, invalid.as_str(), false),
        ];
        let reads = async {
            let reading = read(&place, &totals(), "A", ReadMode::Exact).await.unwrap();
            assert_eq!((reading.total, reading.slots), (Number::from(3_i64), 2));
            let reason =
                read(&place, &totals(), "A", ReadMode::Exact).await.unwrap_err().to_string();
            assert!(reason.contains("ValidationError"), "{reason}");
        };
        let (requests, ()) = tokio::join!(serve(listener, &answers), reads);
        assert_eq!(requests.len(), answers.len());
    }

    /// A key that is too long would make DynamoDB reject the whole read.
    #[tokio::test]
    async fn a_slot_whose_key_would_be_too_long_is_not_asked_for() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut place = place(&format!("http://{}", listener.local_addr().unwrap()));
        place.rule.slot_count = 12;
        let counter = "c".repeat(PARTITION_KEY_BYTES_MAX - 2);
        let answers = [(200, r#"{"Responses":[{"Item":{"votes":{"N":"5"}}}]}"#, false)];
        let reads = async {
            let reading = read(&place, &totals(), &counter, ReadMode::Exact).await.unwrap();
            assert_eq!((reading.total, reading.slots), (Number::from(5_i64), 1));
        };
        let (requests, ()) = tokio::join!(serve(listener, &answers), reads);
        assert_eq!(requests[0].matches(r#""Get""#).count(), 10);
    }

    /// The table has the state after `fold --to 1`: the value of slot 1 is in slot 0.
    #[tokio::test]
    async fn a_slot_that_was_folded_away_is_not_counted() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let place = place(&format!("http://{}", listener.local_addr().unwrap()));
        let stamp = |last: &str| format!("l/{}{last}", "0".repeat(39));
        let total = format!(
            r#"{{"Item":{{"counter":{{"S":"A"}},"total":{{"N":"5"}},"revision":{{"N":"3"}},"slots":{{"M":{{"0":{{"M":{{"value":{{"N":"5"}},"stamp":{{"S":"{}"}}}}}},"1":{{"M":{{"value":{{"N":"0"}},"stamp":{{"S":"{}"}},"gone_at":{{"N":"99"}}}}}}}}}}}}}}"#,
            stamp("8"),
            stamp("9")
        );
        let answers = [(200, total.as_str(), false)];
        let reads = async {
            let reading = read(&place, &totals(), "A", ReadMode::RolledUp).await.unwrap();
            assert_eq!((reading.total, reading.slots), (Number::from(5_i64), 1));
            assert_eq!(reading.as_of, Some(stamp("9")));
            assert_eq!(reading.otherwise, None);
        };
        tokio::join!(serve(listener, &answers), reads);
    }

    /// Another writer wrote the first total. A reconciliation wrote the second total before any
    /// stream record arrived.
    #[tokio::test]
    async fn a_total_that_contradicts_its_slots_is_reported() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let place = place(&format!("http://{}", listener.local_addr().unwrap()));
        let item = |total: &str, stamp: &str| {
            format!(
                r#"{{"Item":{{"counter":{{"S":"A"}},"total":{{"N":"{total}"}},"revision":{{"N":"1"}},"slots":{{"M":{{"0":{{"M":{{"value":{{"N":"5"}},"stamp":{{"S":"{stamp}"}}}}}}}}}}}}}}"#
            )
        };
        let other = item("12345", &format!("l/{}", "0".repeat(40)));
        let repaired = item("5.0", Stamp::lowest().reconciled(0).as_str());
        let answers =
            [(200, other.as_str(), false), (200, repaired.as_str(), false), (200, "{}", false)];
        let reads = async {
            let reading = read(&place, &totals(), "A", ReadMode::RolledUp).await.unwrap();
            assert_eq!(reading.total, Number::from(5_i64));
            assert_eq!(reading.otherwise.as_deref(), Some("`12345`"));
            assert!(reading.as_of.is_some());
            let reading = read(&place, &totals(), "A", ReadMode::RolledUp).await.unwrap();
            assert_eq!((reading.otherwise, reading.as_of, reading.has_total), (None, None, true));
            let reading = read(&place, &totals(), "A", ReadMode::RolledUp).await.unwrap();
            assert!(!reading.has_total);
        };
        tokio::join!(serve(listener, &answers), reads);
    }

    #[test]
    fn sums_are_exact() {
        let values: Vec<Number> = ["0.1", "0.2", "-7", "12345678901234567890"]
            .iter()
            .map(|n| n.parse().unwrap())
            .collect();
        assert_eq!(sum(values.iter()), Ok("12345678901234567883.3".parse().unwrap()));
        assert_eq!(sum([].iter()), Ok(Number::ZERO));
    }

    #[tokio::test]
    async fn a_missing_table_or_another_key_is_reported_with_its_flag() {
        let store = testing::store::TestStore::open().await;
        let place = place(&store.url);
        let read_all = async || {
            let mut said = Vec::new();
            for how in [ReadMode::RolledUp, ReadMode::Exact, ReadMode::Fresh] {
                said.push(read(&place, &totals(), "A", how).await.unwrap_err().to_string());
            }
            said
        };
        let [slots, all_totals] = [place.slots_table.clone(), totals().totals_table];
        let total = format!(
            "; name the table with --totals-table, for example --totals-table dev-{all_totals}"
        );
        let slot =
            format!("; name the table with --slots-table, for example --slots-table dev-{slots}");
        for (said, flag) in read_all().await.iter().zip([&total, &slot, &total]) {
            assert!(said.ends_with(flag), "{said}");
        }
        // The tables' key is `p`.
        store.table(&slots).await;
        store.table(&all_totals).await;
        for (said, flag) in
            read_all().await.iter().zip(["--total-key", "--slot-key", "--total-key"])
        {
            assert!(
                said.ends_with(&format!("name it with {flag}, for example {flag} id")),
                "{said}"
            );
        }
    }
}
