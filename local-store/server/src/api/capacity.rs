//! Consumed capacity: what a request costs, and how the answer says it.
//!
//! Only the arithmetic; nothing is limited here. Tables have no indexes, so all of it is the
//! table's. Source: AWS, "DynamoDB provisioned capacity mode", read and write consumption.

use std::fmt::{self, Write as _};

use model::json;
use model::limits::{READ_UNIT_BYTES, WRITE_UNIT_BYTES};

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
    pub(crate) fn write_member(self, out: &mut String, table: &str, capacity: Capacity) {
        if self != Self::None {
            begin_member(out, "ConsumedCapacity");
            self.write(out, table, capacity);
        }
    }

    /// Appends the member `ConsumedCapacity` of several tables, if it was asked for.
    pub(crate) fn write_list_member(self, out: &mut String, tables: &[(&str, Capacity)]) {
        if self == Self::None {
            return;
        }
        begin_member(out, "ConsumedCapacity");
        out.push('[');
        for (position, (table, capacity)) in tables.iter().enumerate() {
            if position > 0 {
                out.push(',');
            }
            self.write(out, table, *capacity);
        }
        out.push(']');
    }

    fn write(self, out: &mut String, table: &str, capacity: Capacity) {
        out.push_str("{\"TableName\":");
        json::write_string(out, table);
        let _ = write!(out, ",\"CapacityUnits\":{capacity}");
        if self == Self::Indexes {
            let _ = write!(out, ",\"Table\":{{\"CapacityUnits\":{capacity}}}");
        }
        out.push('}');
    }
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
