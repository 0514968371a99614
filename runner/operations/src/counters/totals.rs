//! Reads counters for programs that display them, such as the console: each total together with the
//! sum of its slots. The module prints nothing.

use std::collections::HashMap;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::types::AttributeValue as SdkValue;
use futures::{StreamExt as _, stream};
use model::Number;
use rules::counters::Counters;
use template::Stack;

use super::flags::{SlotFlags, TotalFlags};
use super::reading::{Reading, read};
use super::{Place, ReadMode, slot_count};
use client::failure::{Context, Result};

/// Number of counters whose slots are read concurrently.
const READS_AT_ONCE: usize = 8;

/// The tables of slots and totals, and the function's settings.
pub struct CounterPlace {
    place: Place,
    totals: TotalFlags,
}

/// A counter: its total, and the sum of its slots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counter {
    /// The name.
    pub name: String,
    /// The total that the function keeps; `None` if there is no total item.
    pub total: Option<Number>,
    /// The sum of the slots, which includes every vote that was acknowledged before the read.
    pub sum: Number,
    /// Number of slots that exist.
    pub slots: usize,
    /// The stamp of the last stream record that the total includes.
    pub as_of: Option<String>,
    /// The attribute `total` of the total item, if it differs from the slots in the same item.
    pub otherwise: Option<String>,
}

/// A page of counters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CounterPage {
    /// The counters by name, each with its values or the reason why it cannot be read.
    pub counters: Vec<(String, Result<Counter>)>,
    /// The name after which the next page begins.
    pub next: Option<String>,
}

impl CounterPlace {
    /// Returns the tables that the counters function of the template uses. Without a template,
    /// returns the tables of Weir's own template.
    ///
    /// # Errors
    /// When the template's number of slots is malformed.
    pub fn of(client: &Client, endpoint: &str, stack: Option<&Stack>) -> Result<Self> {
        let functions = stack.map_or(&[][..], |stack| &stack.functions);
        let totalling =
            functions.iter().find(|function| function.environment.contains_key("SLOTS_TABLE"));
        let setting = |name: &str, default: &str| {
            let found = totalling.and_then(|function| function.environment.get(name));
            found.cloned().unwrap_or_else(|| default.to_owned())
        };
        let slots = SlotFlags {
            slots_table: setting("SLOTS_TABLE", "votes"),
            slot_key: setting("SLOT_KEY", "slot"),
            slot_value: setting("SLOT_VALUE", "votes"),
        };
        let totals = TotalFlags {
            totals_table: setting("TOTALS_TABLE", "totals"),
            total_key: setting("TOTAL_KEY", "counter"),
        };
        let slot_count = slot_count(stack, &slots.slots_table)?;
        let SlotFlags { slots_table, slot_key, slot_value } = slots;
        let place = Place {
            client: client.clone(),
            endpoint: endpoint.to_owned(),
            rule: Counters { slot_count, slot_key, slot_value },
            slots_table,
        };
        Ok(Self { place, totals })
    }

    /// Returns the names of the slots table and of the totals table.
    #[must_use]
    pub fn tables(&self) -> (&str, &str) {
        (&self.place.slots_table, &self.totals.totals_table)
    }

    /// Returns the number of slots of each counter.
    #[must_use]
    pub fn slot_count(&self) -> u32 {
        self.place.rule.slot_count
    }

    /// Returns a counter.
    ///
    /// # Errors
    /// When a table cannot be read, or an item is not a counter.
    pub async fn counter(&self, name: &str) -> Result<Counter> {
        let total = read(&self.place, &self.totals, name, ReadMode::RolledUp).await?;
        let fresh = read(&self.place, &self.totals, name, ReadMode::Fresh).await?;
        let Reading { as_of, otherwise, .. } = total;
        Ok(Counter {
            name: name.to_owned(),
            total: total.has_total.then_some(total.total),
            sum: fresh.total,
            slots: fresh.slots,
            as_of,
            otherwise,
        })
    }

    /// Returns a page of counters that have a total, in the order of the table. Reads one page of
    /// the table of totals, with at most `at_most` items.
    ///
    /// # Errors
    /// When the table of totals cannot be read.
    pub async fn page(&self, after: Option<&str>, at_most: u16) -> Result<CounterPage> {
        let TotalFlags { totals_table, total_key } = &self.totals;
        let start =
            after.map(|after| HashMap::from([(total_key.clone(), SdkValue::S(after.to_owned()))]));
        let request = self.place.client.scan().table_name(totals_table).limit(at_most.into());
        let request = request.projection_expression("#key");
        let request = request.expression_attribute_names("#key", total_key);
        let answer = request.set_exclusive_start_key(start).send().await;
        let answer = answer.context(|| format!("cannot read table `{totals_table}`"))?;
        let name_of = |item: &HashMap<String, SdkValue>| {
            item.get(total_key).and_then(|key| key.as_s().ok()).cloned()
        };
        let names: Vec<String> = answer.items().iter().filter_map(name_of).collect();
        let counters = stream::iter(names)
            .map(|name| async move {
                let counter = self.counter(&name).await;
                (name, counter)
            })
            .buffered(READS_AT_ONCE)
            .collect()
            .await;
        let next = answer.last_evaluated_key.as_ref().and_then(name_of);
        Ok(CounterPage { counters, next })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use testing::store::TestStore;

    #[tokio::test]
    async fn a_total_is_shown_beside_the_sum_of_its_slots() {
        let store = TestStore::open().await;
        // The tables of a test have the key `p`.
        for table in ["votes", "totals"] {
            store.table(table).await;
        }
        let mut place = CounterPlace::of(&store.client, &store.url, None).unwrap();
        place.place.rule.slot_key = "p".to_owned();
        place.totals.total_key = "p".to_owned();
        for (slot, votes) in [("A#0", "5"), ("A#3", "2"), ("B#0", "1")] {
            let put = store.client.put_item().table_name("votes");
            let put = put.item("p", SdkValue::S(slot.to_owned()));
            put.item("votes", SdkValue::N(votes.to_owned())).send().await.unwrap();
        }
        let alone = place.counter("A").await.unwrap();
        assert_eq!((alone.total, alone.sum, alone.slots), (None, Number::from(7_i64), 2));
        let cell = |value: &str| {
            let stamp = SdkValue::S(format!("l/{}7", "0".repeat(39)));
            let value = SdkValue::N(value.to_owned());
            SdkValue::M([("value".to_owned(), value), ("stamp".to_owned(), stamp)].into())
        };
        let slots = SdkValue::M([("0".to_owned(), cell("5"))].into());
        let put = store.client.put_item().table_name("totals");
        let put = put.item("p", SdkValue::S("A".to_owned()));
        let put = put.item("total", SdkValue::N("5".to_owned()));
        let put = put.item("revision", SdkValue::N("1".to_owned())).item("slots", slots);
        put.send().await.unwrap();
        let page = place.page(None, 5).await.unwrap();
        let [(name, Ok(counter))] = page.counters.as_slice() else { panic!("{page:?}") };
        assert_eq!((name.as_str(), page.next.as_deref()), ("A", None));
        assert_eq!((counter.total, counter.sum), (Some(5_i64.into()), 7_i64.into()));
        assert_eq!(place.page(None, 1).await.unwrap().next.as_deref(), Some("A"));
        assert!(place.page(Some("A"), 1).await.unwrap().counters.is_empty());
        let other = CounterPlace::of(&store.client, &store.url, None).unwrap();
        assert!(other.page(None, 1).await.is_ok_and(|page| page.counters.is_empty()));
    }
}
