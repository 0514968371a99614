//! Consumed capacity: the cost of a request, and its representation in a response.
//!
//! This module only computes; `traffic` limits requests. Source: AWS, "DynamoDB provisioned capacity
//! mode", read and write consumption; "Using global secondary indexes", provisioned throughput.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

use model::json;
use model::limits::{READ_UNIT_BYTES, WRITE_UNIT_BYTES};
use partition::{IndexKind, SecondaryIndex, Table, Written};

use super::answer::begin_member;

/// Capacity in half units, because an eventually consistent read costs half a unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Capacity {
    halves: usize,
}

impl Capacity {
    /// Returns the cost of a write with an old and a new image, which depends on the larger image.
    /// The minimum is one unit.
    pub(crate) fn of_write(old_bytes: usize, new_bytes: usize) -> Self {
        Self { halves: 2 * old_bytes.max(new_bytes).div_ceil(WRITE_UNIT_BYTES).max(1) }
    }

    /// Returns the cost of reading this number of bytes. The minimum is one unit if the read is
    /// strongly consistent, and otherwise half a unit.
    pub(crate) fn of_read(bytes: usize, is_consistent: bool) -> Self {
        let units = bytes.div_ceil(READ_UNIT_BYTES).max(1);
        Self { halves: if is_consistent { 2 * units } else { units } }
    }

    /// Returns the cost of a write in a transaction that the client repeated with the same token.
    /// The cost is the cost of a read, because the store returns the earlier result. The cost
    /// depends on the larger of the two images.
    pub(crate) fn of_repeat(written: &Written) -> Self {
        Self::of_read(written.old_bytes.max(written.new_bytes), true)
    }

    /// Returns the capacity in half units.
    pub(crate) fn halves(self) -> u64 {
        u64::try_from(self.halves).unwrap_or(u64::MAX)
    }

    /// Returns the sum of two capacities.
    pub(crate) fn plus(self, other: Self) -> Self {
        Self { halves: self.halves + other.halves }
    }
}

impl fmt::Display for Capacity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.halves / 2, self.halves % 2 * 5)
    }
}

/// The capacity that a request consumed of one table and of its indexes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Consumption {
    table: Capacity,
    local: BTreeMap<String, Capacity>,
    global: BTreeMap<String, Capacity>,
    /// The capacity of failed statements, which counts only in the total, not for the table.
    refused: Capacity,
}

impl From<Capacity> for Consumption {
    fn from(table: Capacity) -> Self {
        Self { table, ..Self::default() }
    }
}

impl Consumption {
    /// Returns the consumption of a write. Index entries are included only if `detail` is not
    /// `None`, because otherwise the response does not show them.
    pub(crate) fn of_write(table: &Table, written: &Written, detail: CapacityDetail) -> Self {
        let mut consumption = Self::from(Capacity::of_write(written.old_bytes, written.new_bytes));
        if detail == CapacityDetail::None {
            return consumption;
        }
        for write in &written.index_writes {
            if let Some(index) = table.indexes.iter().find(|index| index.number == write.index) {
                consumption.add(index, Capacity::of_write(write.old_bytes, write.new_bytes));
            }
        }
        consumption
    }

    /// Adds the capacity that a failed statement consumed.
    pub(crate) fn add_refused(&mut self, capacity: Capacity) {
        self.refused = self.refused.plus(capacity);
    }

    /// Returns the consumption in a transaction. The cost of items is doubled, because an item is
    /// prepared and then committed. The cost of index entries does not change.
    fn in_transaction(mut self) -> Self {
        self.table = self.table.plus(self.table);
        self
    }

    /// Adds the capacity that an index consumed.
    pub(crate) fn add(&mut self, index: &SecondaryIndex, capacity: Capacity) {
        let indexes = match index.definition.kind {
            IndexKind::Local => &mut self.local,
            IndexKind::Global => &mut self.global,
        };
        let sum = indexes.entry(index.definition.name.clone()).or_default();
        *sum = sum.plus(capacity);
    }

    /// Returns the sum of two consumptions.
    pub(crate) fn plus(mut self, other: Self) -> Self {
        self.table = self.table.plus(other.table);
        for (name, capacity) in other.local {
            let sum = self.local.entry(name).or_default();
            *sum = sum.plus(capacity);
        }
        for (name, capacity) in other.global {
            let sum = self.global.entry(name).or_default();
            *sum = sum.plus(capacity);
        }
        self.refused = self.refused.plus(other.refused);
        self
    }

    fn total(&self) -> Capacity {
        let indexes = self.local.values().chain(self.global.values());
        indexes.fold(self.table.plus(self.refused), |sum, capacity| sum.plus(*capacity))
    }
}

/// The kind of units that a transaction consumes, read or write, which its response shows in
/// addition to the total.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TransactionUnits {
    /// Units of `ReadCapacityUnits`.
    Read,
    /// Units of `WriteCapacityUnits`.
    Write,
}

/// The value of `ReturnConsumedCapacity`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CapacityDetail {
    None,
    Total,
    Indexes,
}

impl CapacityDetail {
    /// Converts a valid value of `ReturnConsumedCapacity`.
    pub(crate) fn from_parameter(text: Option<&str>) -> Self {
        match text {
            Some("TOTAL") => Self::Total,
            Some("INDEXES") => Self::Indexes,
            _ => Self::None,
        }
    }

    /// Appends the member `ConsumedCapacity` of one table, if requested.
    pub(crate) fn write_member(
        self,
        out: &mut String,
        table: &str,
        consumption: impl Into<Consumption>,
    ) {
        if self != Self::None {
            begin_member(out, "ConsumedCapacity");
            self.write(out, table, &consumption.into(), None);
        }
    }

    /// Appends the member `ConsumedCapacity` of several tables, if requested.
    pub(crate) fn write_list_member<C: Clone + Into<Consumption>>(
        self,
        out: &mut String,
        tables: &[(impl AsRef<str>, C)],
    ) {
        if self == Self::None {
            return;
        }
        begin_member(out, "ConsumedCapacity");
        out.push('[');
        for (position, (table, consumption)) in tables.iter().enumerate() {
            if position > 0 {
                out.push(',');
            }
            self.write(out, table.as_ref(), &consumption.clone().into(), None);
        }
        out.push(']');
    }

    /// Appends the member `ConsumedCapacity` of a transaction, if requested: the sum of all operations
    /// for each table.
    pub(crate) fn write_transaction_member(
        self,
        out: &mut String,
        units: TransactionUnits,
        operations: Vec<(&str, Consumption)>,
    ) {
        if self == Self::None {
            return;
        }
        let mut tables: BTreeMap<&str, Consumption> = BTreeMap::new();
        for (table, consumption) in operations {
            let sum = tables.entry(table).or_default();
            *sum = std::mem::take(sum).plus(consumption.in_transaction());
        }
        begin_member(out, "ConsumedCapacity");
        out.push('[');
        for (table, consumption) in tables {
            if out.ends_with('}') {
                out.push(',');
            }
            self.write(out, table, &consumption, Some(units));
        }
        out.push(']');
    }

    /// Appends the members of one consumption. In a transaction, each object also has the member
    /// `ReadCapacityUnits` or `WriteCapacityUnits`.
    fn write(
        self,
        out: &mut String,
        table: &str,
        consumption: &Consumption,
        units: Option<TransactionUnits>,
    ) {
        out.push_str("{\"TableName\":");
        json::write_string(out, table);
        write_units(out, ',', consumption.total(), units);
        if self == Self::Indexes {
            begin_member(out, "Table");
            write_units(out, '{', consumption.table, units);
            out.push('}');
            write_indexes(out, "LocalSecondaryIndexes", &consumption.local, units);
            write_indexes(out, "GlobalSecondaryIndexes", &consumption.global, units);
        }
        out.push('}');
    }
}

fn write_units(
    out: &mut String,
    before: char,
    capacity: Capacity,
    units: Option<TransactionUnits>,
) {
    let _ = write!(out, "{before}\"CapacityUnits\":{capacity}");
    let name = match units {
        Some(TransactionUnits::Read) => "ReadCapacityUnits",
        Some(TransactionUnits::Write) => "WriteCapacityUnits",
        None => return,
    };
    let _ = write!(out, ",\"{name}\":{capacity}");
}

/// Appends a member named `list` with the consumption of each index; appends nothing if there is no
/// such consumption.
fn write_indexes(
    out: &mut String,
    list: &str,
    indexes: &BTreeMap<String, Capacity>,
    units: Option<TransactionUnits>,
) {
    if indexes.is_empty() {
        return;
    }
    begin_member(out, list);
    let mut separator = '{';
    for (name, capacity) in indexes {
        out.push(separator);
        separator = ',';
        json::write_string(out, name);
        out.push(':');
        write_units(out, '{', *capacity, units);
        out.push('}');
    }
    out.push('}');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_rounded_up() {
        for (bytes, consistent, shown) in [
            (0, true, "1.0"),
            (0, false, "0.5"),
            (4096, true, "1.0"),
            (4097, true, "2.0"),
            (4097, false, "1.0"),
            (12_288, false, "1.5"),
        ] {
            assert_eq!(Capacity::of_read(bytes, consistent).to_string(), shown, "{bytes}");
        }
        for (old, new, shown) in
            [(0, 0, "1.0"), (1024, 10, "1.0"), (1025, 0, "2.0"), (0, 2049, "3.0")]
        {
            assert_eq!(Capacity::of_write(old, new).to_string(), shown, "{old} {new}");
        }
        assert_eq!(
            Capacity::of_read(1, false).plus(Capacity::of_read(1, false)).to_string(),
            "1.0"
        );
    }

    #[test]
    fn details() {
        let member = |text| {
            let mut out = String::from("{");
            CapacityDetail::from_parameter(text).write_member(
                &mut out,
                "t",
                Capacity::of_write(0, 0),
            );
            out
        };
        assert_eq!(member(None), "{");
        assert_eq!(member(Some("NONE")), "{");
        assert_eq!(
            member(Some("TOTAL")),
            r#"{"ConsumedCapacity":{"TableName":"t","CapacityUnits":1.0}"#
        );
        assert_eq!(
            member(Some("INDEXES")),
            r#"{"ConsumedCapacity":{"TableName":"t","CapacityUnits":1.0,"Table":{"CapacityUnits":1.0}}"#
        );
    }
}
