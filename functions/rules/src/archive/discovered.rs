//! Discovered columns: the columns of attributes that are not declared.
//!
//! A column's name contains the attribute and its type: `price_n` holds the numbers of `price`,
//! `price_s` its strings. A name therefore has the same type in all files, as query engines
//! require. No state is kept between batches. `Schema::union` decides which columns a file has.

use std::collections::BTreeSet;

use model::json::ItemView;
use model::{AttributeType, Number};

use super::column::{Column, ColumnType, Path, Schema, is_reserved};

/// The maximum number of attributes of one item that get a column, inclusive. An item that uses
/// data as attribute names must not produce thousands of columns.
pub const DISCOVERED_MAX: usize = 200;
/// The type of every discovered number: 28 digits before the point and 10 after it. The type is
/// fixed, so that a column does not change when a later number has a fraction.
const NUMBER: ColumnType = ColumnType::Decimal { precision: NUMBER_PRECISION, scale: NUMBER_SCALE };
const NUMBER_PRECISION: u8 = 38;
const NUMBER_SCALE: u8 = 10;
const NUMBER_SUFFIX: &str = "_n";
/// The types of attributes that can get a column.
const ATTRIBUTE_TYPES: [AttributeType; 9] = [
    AttributeType::S,
    AttributeType::N,
    AttributeType::Bool,
    AttributeType::B,
    AttributeType::M,
    AttributeType::L,
    AttributeType::Ss,
    AttributeType::Ns,
    AttributeType::Bs,
];

/// Returns the suffix of the column's name and the column's type. Returns `None` for the type NULL,
/// which gets no column.
fn column_of(attribute_type: AttributeType) -> Option<(&'static str, ColumnType)> {
    Some(match attribute_type {
        AttributeType::S => ("_s", ColumnType::String),
        AttributeType::N => (NUMBER_SUFFIX, NUMBER),
        AttributeType::Bool => ("_bool", ColumnType::Boolean),
        AttributeType::B => ("_b", ColumnType::Binary),
        AttributeType::M => ("_m", ColumnType::Json),
        AttributeType::L => ("_l", ColumnType::Json),
        AttributeType::Ss => ("_ss", ColumnType::Json),
        AttributeType::Ns => ("_ns", ColumnType::Json),
        AttributeType::Bs => ("_bs", ColumnType::Json),
        AttributeType::Null => return None,
    })
}

/// Returns whether a column was discovered. Only the name of a discovered column ends with the
/// suffix of its attribute's type.
#[must_use]
pub fn is_discovered(name: &str, attribute: &str, column_type: ColumnType) -> bool {
    let folded = Path::top_level(attribute).column_name();
    let mut known = ATTRIBUTE_TYPES.into_iter().filter_map(column_of);
    name.strip_prefix(folded.as_str())
        .is_some_and(|suffix| known.any(|known| known == (suffix, column_type)))
}

/// Returns the name of the discovered column of an attribute with a value of this type; `None` for
/// the type NULL, which gets no column.
#[must_use]
pub fn discovered_column(attribute: &str, attribute_type: AttributeType) -> Option<String> {
    let (suffix, _) = column_of(attribute_type)?;
    Some(Path::top_level(attribute).column_name() + suffix)
}

/// Returns the name of the discovered column of an attribute's numbers.
pub(super) fn number_column(attribute: &str) -> String {
    Path::top_level(attribute).column_name() + NUMBER_SUFFIX
}

/// Returns whether a discovered column can hold the number.
pub(super) fn has_room_for(number: &Number) -> bool {
    let bound = 10_u128.pow(NUMBER_PRECISION.into());
    let unscaled = number.to_scaled_i128(NUMBER_SCALE.into());
    unscaled.is_some_and(|unscaled| unscaled.unsigned_abs() < bound)
}

/// Returns the columns of `base`, followed by one column for each other attribute of the item, in
/// the order of the columns' names. Also returns a note for each attribute that gets no column.
pub(super) fn discover(base: &Schema, item: &ItemView<'_>) -> (Schema, Vec<String>) {
    let known: BTreeSet<&Path> = base.columns().map(|column| &column.path).collect();
    let mut taken: BTreeSet<String> = base.columns().map(|column| column.name.clone()).collect();
    let (mut found, mut notes, mut over) = (Vec::new(), Vec::new(), 0_usize);
    for (attribute, value) in item.iter() {
        let path = Path::top_level(attribute);
        let Some((suffix, column_type)) = column_of(value.attribute_type()) else { continue };
        if known.contains(&path) {
            continue;
        }
        if found.len() == DISCOVERED_MAX {
            over += 1;
            continue;
        }
        let name = path.column_name() + suffix;
        if is_reserved(&name) || !taken.insert(name.clone()) {
            notes.push(format!("{name}: {attribute} has no column: the column name is taken"));
            continue;
        }
        found.push(Column { name, path, column_type });
    }
    if over > 0 {
        let beyond = if over == 1 { "attribute beyond" } else { "attributes beyond" };
        let have = if over == 1 { "has" } else { "have" };
        notes.push(format!("{over} {beyond} {DISCOVERED_MAX} {have} no column"));
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    (base.with_discovered(found), notes)
}

#[cfg(test)]
mod tests {
    use model::Item;
    use model::json::item_from_str;

    use super::super::column::parse_columns;
    use super::*;

    fn discovered(declared: &str, item: &str) -> String {
        let keys = item_from_str(r#"{"id":{"S":"1"}}"#).unwrap();
        let base = Schema::of(&ItemView::of(&keys), &parse_columns(declared).unwrap());
        let (schema, notes) = discover(&base, &ItemView::of(&item_from_str(item).unwrap()));
        let columns = schema.columns().map(|c| format!("{}={}:{}", c.name, c.path, c.column_type));
        columns.chain(notes).collect::<Vec<_>>().join(" | ")
    }

    #[test]
    fn a_name_contains_its_attribute_and_its_type() {
        for (declared, item, expected) in [
            (
                "",
                r#"{"id":{"S":"1"},"price":{"N":"1"},"Paid":{"BOOL":true},"raw":{"B":"AA=="}}"#,
                "id=id:string | paid_bool=Paid:boolean | price_n=price:decimal(38,10) | raw_b=raw:binary",
            ),
            ("", r#"{"price":{"S":"1"}}"#, "id=id:string | price_s=price:string"),
            (
                "",
                r#"{"a":{"M":{}},"b":{"L":[]},"c":{"SS":["x"]},"d":{"NS":["1"]},"e":{"BS":["AA=="]},"f":{"NULL":true}}"#,
                "id=id:string | a_m=a:json | b_l=b:json | c_ss=c:json | d_ns=d:json | e_bs=e:json",
            ),
            // These names differ only in case, or in characters that a column name cannot contain.
            (
                "",
                r#"{"name":{"S":"a"},"Name":{"S":"b"},"NAME":{"N":"1"}}"#,
                "id=id:string | name_n=NAME:decimal(38,10) | name_s=Name:string | name_s: name has no column: the column name is taken",
            ),
            // A declared attribute has only its declared column. The map that contains it has a
            // separate column.
            (
                "price:bigint,info.x:json",
                r#"{"price":{"N":"1"},"info":{"M":{}}}"#,
                "id=id:string | price=price:bigint | info_x=info.x:json | info_m=info:json",
            ),
            (
                "price_n:string",
                r#"{"price":{"N":"1"},"dt":{"S":"x"}}"#,
                "id=id:string | price_n=price_n:string | dt_s=dt:string | price_n: price has no column: the column name is taken",
            ),
        ] {
            assert_eq!(discovered(declared, item), expected, "{declared} {item}");
        }
    }

    #[test]
    fn discovered_columns_are_recognised_by_name() {
        let bigint = ColumnType::Bigint;
        for (name, attribute, column_type, expected) in [
            ("price_n", "price", NUMBER, true),
            ("price_n", "Price", NUMBER, true),
            ("a_b_ss", "a.b", ColumnType::Json, true),
            // The column of a declared attribute.
            ("price_n", "price_n", NUMBER, false),
            ("price_n", "price", bigint, false),
            ("price", "price", ColumnType::String, false),
            // The column of a key attribute.
            ("info_x_key", "info_x", ColumnType::String, false),
        ] {
            assert_eq!(is_discovered(name, attribute, column_type), expected, "{name} {attribute}");
        }
        for attribute_type in ATTRIBUTE_TYPES {
            let (_, column_type) = column_of(attribute_type).unwrap();
            let name = discovered_column("a.B", attribute_type).unwrap();
            assert!(is_discovered(&name, "a.B", column_type), "{name}");
        }
    }

    #[test]
    fn names_as_data_do_not_become_thousands_of_columns() {
        let keys = item_from_str(r#"{"id":{"S":"1"}}"#).unwrap();
        for (more, expected) in [
            (3, "3 attributes beyond 200 have no column"),
            (1, "1 attribute beyond 200 has no column"),
        ] {
            let names = (0..DISCOVERED_MAX + more)
                .map(|number| (format!("a{number:05}"), model::AttributeValue::Bool(true)));
            let item: Item = names.collect();
            let (schema, notes) =
                discover(&Schema::of(&ItemView::of(&keys), &[]), &ItemView::of(&item));
            assert_eq!(schema.columns().count(), 1 + DISCOVERED_MAX);
            assert_eq!(notes, [expected]);
        }
    }
}
