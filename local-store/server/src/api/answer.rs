//! Writes the JSON of a response as a string, member by member, without a tree of JSON values.
//!
//! The crate `model` serializes items.

use std::fmt::Write as _;

use model::{EpochMillis, IndexKeySchema, Item, KeyAttribute, KeySchema, json};

/// Appends a comma if needed, and a member's name.
pub(crate) fn begin_member(out: &mut String, name: &str) {
    if !out.ends_with('{') {
        out.push(',');
    }
    json::write_string(out, name);
    out.push(':');
}

/// Appends a member that is a string.
pub(crate) fn text_member(out: &mut String, name: &str, text: &str) {
    begin_member(out, name);
    json::write_string(out, text);
}

/// Appends a member that is an integer.
pub(crate) fn number_member(out: &mut String, name: &str, number: u64) {
    begin_member(out, name);
    let _ = write!(out, "{number}");
}

/// Appends a member that is `true` or `false`.
pub(crate) fn boolean_member(out: &mut String, name: &str, flag: bool) {
    begin_member(out, name);
    out.push_str(if flag { "true" } else { "false" });
}

/// Appends a member that is an item.
pub(crate) fn item_member(out: &mut String, name: &str, item: &Item) {
    begin_member(out, name);
    json::write_item(out, item);
}

/// Appends a member that is a time: seconds since 1970 with three decimals.
pub(crate) fn time_member(out: &mut String, name: &str, time: EpochMillis) {
    begin_member(out, name);
    let _ = write!(out, "{}.{:03}", time.seconds(), time.0 % 1000);
}

/// Appends the member `KeySchema` of a table.
pub(crate) fn key_schema_member(out: &mut String, schema: &KeySchema) {
    write_key_schema(out, std::iter::once(&schema.partition), schema.sort.iter());
}

/// Appends the member `KeySchema` of an index.
pub(crate) fn index_key_schema_member(out: &mut String, schema: &IndexKeySchema) {
    write_key_schema(out, schema.partition.iter(), schema.sort.iter());
}

fn write_key_schema<'k>(
    out: &mut String,
    partition: impl Iterator<Item = &'k KeyAttribute>,
    sort: impl Iterator<Item = &'k KeyAttribute>,
) {
    begin_member(out, "KeySchema");
    out.push('[');
    let kinds = partition.map(|key| (key, "HASH")).chain(sort.map(|key| (key, "RANGE")));
    for (position, (attribute, kind)) in kinds.enumerate() {
        out.push_str(if position > 0 { ",{" } else { "{" });
        text_member(out, "AttributeName", &attribute.name);
        text_member(out, "KeyType", kind);
        out.push('}');
    }
    out.push(']');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_separated() {
        let mut out = String::from("{");
        text_member(&mut out, "a", "b\"");
        number_member(&mut out, "c", 7);
        boolean_member(&mut out, "d", false);
        time_member(&mut out, "e", EpochMillis(1_795_000_000_007));
        begin_member(&mut out, "f");
        out.push('{');
        item_member(&mut out, "g", &Item::new());
        out.push_str("}}");
        assert_eq!(out, r#"{"a":"b\"","c":7,"d":false,"e":1795000000.007,"f":{"g":{}}}"#);
    }
}
