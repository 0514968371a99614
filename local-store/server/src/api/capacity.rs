//! Consumed capacity: what a request costs, and how the answer says it.
//!
//! Only the arithmetic; nothing is limited here. Source: AWS, "DynamoDB provisioned capacity mode",
//! read and write consumption; "Using global secondary indexes", provisioned throughput.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

use model::json;
use model::limits::{READ_UNIT_BYTES, WRITE_UNIT_BYTES};
use partition::{IndexKind, SecondaryIndex, Table, Written};

use super::answer::begin_member;

/// Capacity units, counted in halves: an eventually consistent read costs half a unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Capacity {
    halves: usize,
}

impl Capacity {
    /// Of a write: the larger of both images counts; nothing at all still costs one unit.
    pub(crate) fn of_write(old_bytes: usize, new_bytes: usize) -> Self {
        Self { halves: 2 * old_bytes.max(new_bytes).div_ceil(WRITE_UNIT_BYTES).max(1) }
    }

    /// Of reading so many bytes; nothing at all still costs one unit.
    pub(crate) fn of_read(bytes: usize, is_consistent: bool) -> Self {
        let units = bytes.div_ceil(READ_UNIT_BYTES).max(1);
        Self { halves: if is_consistent { 2 * units } else { units } }
    }

    /// Of one operation of a transaction that is asked for again: what it did then is only read, of
    /// the larger of both images.
    pub(crate) fn of_repeat(written: &Written) -> Self {
        Self::of_read(written.old_bytes.max(written.new_bytes), true)
    }

    /// The units, counted in halves.
    pub(crate) fn halves(self) -> u64 {
        u64::try_from(self.halves).unwrap_or(u64::MAX)
    }

    /// Both together.
    pub(crate) fn plus(self, other: Self) -> Self {
        Self { halves: self.halves + other.halves }
    }
}

impl fmt::Display for Capacity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.halves / 2, self.halves % 2 * 5)
    }
}

/// What a request consumed of one table and of its indexes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Consumption {
    table: Capacity,
    local: BTreeMap<String, Capacity>,
    global: BTreeMap<String, Capacity>,
    /// What statements consumed that failed: part of the sum, but of nothing else.
    refused: Capacity,
}

impl From<Capacity> for Consumption {
    fn from(table: Capacity) -> Self {
        Self { table, ..Self::default() }
    }
}

impl Consumption {
    /// Of a write, with the entries of indexes that it changed. Without these if nothing is asked for:
    /// then it is shown to nobody, and what a write takes of the throughput is counted elsewhere.
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

    /// Adds what a statement consumed that failed.
    pub(crate) fn add_refused(&mut self, capacity: Capacity) {
        self.refused = self.refused.plus(capacity);
    }

    /// The same in a transaction: it prepares and commits an item, each for its price, and the
    /// entries of indexes follow as they do outside.
    fn in_transaction(mut self) -> Self {
        self.table = self.table.plus(self.table);
        self
    }

    /// Adds what an index consumed.
    pub(crate) fn add(&mut self, index: &SecondaryIndex, capacity: Capacity) {
        let indexes = match index.definition.kind {
            IndexKind::Local => &mut self.local,
            IndexKind::Global => &mut self.global,
        };
        let sum = indexes.entry(index.definition.name.clone()).or_default();
        *sum = sum.plus(capacity);
    }

    /// Both together.
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

/// What the units of a transaction are, which are shown beside their sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TransactionUnits {
    /// `ReadCapacityUnits`.
    Read,
    /// `WriteCapacityUnits`.
    Write,
}

/// How much `ReturnConsumedCapacity` asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CapacityDetail {
    None,
    Total,
    Indexes,
}

impl CapacityDetail {
    /// Of a checked parameter.
    pub(crate) fn from_parameter(text: Option<&str>) -> Self {
        match text {
            Some("TOTAL") => Self::Total,
            Some("INDEXES") => Self::Indexes,
            _ => Self::None,
        }
    }

    /// Appends the member `ConsumedCapacity` of one table, if it was asked for.
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

    /// Appends the member `ConsumedCapacity` of several tables, if it was asked for.
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

    /// Appends the member `ConsumedCapacity` of a transaction, if it was asked for: what each
    /// operation consumed is summed for each table.
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

    /// A transaction says everywhere of which kind the units are.
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

/// Appends the member `list` with what each index consumed; nothing when there is none.
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
