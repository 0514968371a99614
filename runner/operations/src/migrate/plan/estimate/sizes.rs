//! Sizes of the sampled items before and after a migration, compared with the size of one write
//! unit.
//!
//! For a plan that splits documents, the sizes show whether each part costs only one write unit.

use model::Item;
use model::limits::WRITE_UNIT_BYTES;
use serde_json::{Value, json};

use crate::migrate::report::pointer::at;
use client::output::counted;

/// The summed sizes of a group of items.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sizes {
    items: u64,
    bytes: u64,
    largest: u64,
    /// Number of items that cost one write unit.
    of_one_unit: u64,
}

impl Sizes {
    /// Adds the size of an item.
    pub(super) fn add(&mut self, item: &Item) {
        let size = item.size() as u64;
        self.items += 1;
        self.bytes += size;
        self.largest = self.largest.max(size);
        self.of_one_unit += u64::from(size <= WRITE_UNIT_BYTES as u64);
    }

    /// Returns the sizes before and after, for the report.
    pub(super) fn json(before: &Self, after: &Self) -> Value {
        let of = |it: &Self| {
            json!({
                "items": it.items, "bytes": it.bytes, "largest_bytes": it.largest,
                "of_one_write_unit": it.of_one_unit,
            })
        };
        json!({"before": of(before), "after": of(after)})
    }
}

/// Returns a line with the sizes before, and a line with the sizes after; empty if the report has
/// no sizes.
pub(super) fn text(sizes: &Value) -> String {
    let line = |(name, place): (&str, &str)| {
        let of = |what: &str| at(sizes, &format!("{place}/{what}")).as_u64();
        let items = of("items").filter(|items| *items > 0)?;
        let (units, bytes, largest) =
            (of("of_one_write_unit")?, of("bytes")?, of("largest_bytes")?);
        Some(format!(
            "  {name}: {units} of {} fit one write unit of {WRITE_UNIT_BYTES} bytes; average {}, largest {largest} bytes\n",
            counted(items, "item", "items"),
            bytes / items,
        ))
    };
    [("sizes before", "/before"), ("sizes after", "/after")].into_iter().filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_compared_with_a_write_unit() {
        let (mut before, mut after) = (Sizes::default(), Sizes::default());
        assert_eq!(text(&Sizes::json(&before, &after)), "");
        assert_eq!(text(&Value::Null), "");
        let item = |bytes: usize| Item::new().with("a", "x".repeat(bytes - 1).as_str());
        before.add(&item(3_000));
        [1_024, 1_025, 951].iter().for_each(|bytes| after.add(&item(*bytes)));
        assert_eq!(
            text(&Sizes::json(&before, &after)),
            "  sizes before: 0 of 1 item fit one write unit of 1024 bytes; average 3000, largest 3000 bytes\n  \
             sizes after: 2 of 3 items fit one write unit of 1024 bytes; average 1000, largest 1025 bytes\n"
        );
    }
}
