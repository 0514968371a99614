//! The content of a row: the item as JSON, and the values of the columns.
//!
//! A column holds the exact value or NULL. If a value does not fit exactly, its column is NULL and
//! the row's `coercions` name the column. The item's JSON still contains the value. Numbers are
//! never converted to binary floating point. An item is parsed once. A column value that occurs
//! literally in the item's JSON is not copied. The modules `column` and `discovered` decide which
//! columns exist.

use model::Number;
use model::json::{ItemView, ValueView};

use super::column::{Column, ColumnType, Schema};
use super::misfit;
use super::plain_json::write_plain_json;
use super::row::{CompactValue, Content, Span};

/// The number of bytes before a string or number in DynamoDB JSON: `{"S":"`.
const BEFORE: u32 = 6;
const BEHIND: u32 = 2;
/// The initial capacity of the buffer for a row, in bytes. The buffer grows for larger items.
const CAPACITY_BYTES: usize = 2048;

/// Returns the content of a row: the sequence number, the event id, the item's JSON, and its
/// columns. A value that does not fit is NULL and is named in `coercions`. `places` has the
/// probable positions of the columns' attributes in the item.
pub(super) fn content_of(
    names: (&str, &str),
    item: &ItemView<'_>,
    (schema, places): (&Schema, &[usize]),
    coercions: &mut Vec<String>,
) -> Content {
    let (sequence_number, event_id) = names;
    let texts = String::with_capacity(CAPACITY_BYTES);
    let mut writing = ContentWriter { texts, bytes: Vec::new() };
    let sequence_number = writing.append(|texts| texts.push_str(sequence_number));
    let event_id = writing.append(|texts| texts.push_str(event_id));
    let mut attributes = Vec::with_capacity(item.len());
    let item_span = writing.append(|texts| {
        item.write_and_tell(texts, |start, end| {
            attributes.push(Span { start: offset(start), end: offset(end) });
        });
    });
    let values = schema.columns().enumerate().map(|(position, column)| {
        let place = places.get(position).copied().unwrap_or(0);
        let Some((value, written)) = find(item, &attributes, place, column) else {
            return CompactValue::Null;
        };
        writing.compact_value(column.column_type, value, written).unwrap_or_else(|| {
            coercions.push(misfit::note(column, value.attribute_type()));
            CompactValue::Null
        })
    });
    let values = values.collect();
    // The copy releases the unused capacity. Without it, the row would keep this memory.
    let texts = Box::from(writing.texts.as_str());
    let bytes = writing.bytes.into_boxed_slice();
    Content { texts, sequence_number, event_id, item: item_span, bytes, values }
}

/// Finds a column's attribute. Also finds the position of its value in the item's JSON if the value
/// is not in a nested map.
fn find<'i, 't>(
    item: &'i ItemView<'t>,
    attributes: &[Span],
    place: usize,
    column: &Column,
) -> Option<(&'i ValueView<'t>, Option<Span>)> {
    let (first, rest) = column.path.names().split_first()?;
    let (position, value) = item.find_near(place, first)?;
    let written = attributes.get(position).copied().filter(|_| rest.is_empty());
    let value = rest.iter().try_fold(value, |value, name| value.as_map()?.get(name))?;
    Some((value, written))
}

/// The content of a row while it is written.
struct ContentWriter {
    texts: String,
    bytes: Vec<u8>,
}

impl ContentWriter {
    fn append(&mut self, write: impl FnOnce(&mut String)) -> Span {
        let start = offset(self.texts.len());
        write(&mut self.texts);
        Span { start, end: offset(self.texts.len()) }
    }

    /// Converts a value to a column type; `None` if the value does not fit the type.
    fn compact_value(
        &mut self,
        column_type: ColumnType,
        value: &ValueView<'_>,
        written: Option<Span>,
    ) -> Option<CompactValue> {
        Some(match (column_type, value) {
            (ColumnType::Json, value) => {
                CompactValue::Text(self.append(|texts| write_plain_json(texts, value)))
            }
            (_, ValueView::Null) => CompactValue::Null,
            (ColumnType::String, ValueView::S(text) | ValueView::N(text)) => {
                let as_it_is = written
                    .map(|span| Span { start: span.start + BEFORE, end: span.end - BEHIND })
                    .filter(|span| span.end - span.start == offset(text.len()));
                CompactValue::Text(
                    as_it_is.unwrap_or_else(|| self.append(|texts| texts.push_str(text))),
                )
            }
            // Only an integer parses as `i64`: any other number is written with a point or an
            // exponent.
            (ColumnType::Bigint, ValueView::N(text)) => CompactValue::Integer(text.parse().ok()?),
            (ColumnType::Decimal { precision, scale }, ValueView::N(text)) => {
                let fits =
                    |unscaled: &i128| unscaled.unsigned_abs() < 10_u128.pow(precision.into());
                let unscaled = unscaled(text, scale).filter(fits)?;
                match i64::try_from(unscaled) {
                    Ok(unscaled) => CompactValue::Decimal(unscaled),
                    Err(_) => CompactValue::Wide(Box::new(unscaled)),
                }
            }
            (ColumnType::Boolean, ValueView::Bool(flag)) => CompactValue::Boolean(*flag),
            (ColumnType::Binary, ValueView::B(bytes)) => {
                let start = offset(self.bytes.len());
                self.bytes.extend_from_slice(bytes);
                CompactValue::Binary(Span { start, end: offset(self.bytes.len()) })
            }
            _ => return None,
        })
    }
}

/// Converts an offset to 32 bits. An item has at most 400 KB, so all offsets are far below 4 GB.
fn offset(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}

/// Returns the number times 10^scale; `None` if the result is not exact or does not fit into 128
/// bits.
fn unscaled(text: &str, scale: u8) -> Option<i128> {
    /// The maximum length in bytes of a number whose digits always fit into 64 bits.
    const BYTES_MAX: usize = 18;
    let places = text.bytes().rev().position(|byte| byte == b'.').unwrap_or(0);
    let zeros = usize::from(scale).checked_sub(places)?;
    if text.len() > BYTES_MAX {
        return text.parse::<Number>().ok()?.to_scaled_i128(scale.into());
    }
    let digits = text.bytes().filter(u8::is_ascii_digit);
    let magnitude = digits.fold(0_i64, |sum, digit| sum * 10 + i64::from(digit - b'0'));
    let signed = if text.starts_with('-') { -magnitude } else { magnitude };
    i128::from(signed).checked_mul(10_i128.checked_pow(u32::try_from(zeros).ok()?)?)
}

#[cfg(test)]
mod tests {
    use model::Item;
    use model::json::{attribute_value_from_str, item_from_str, item_to_string};
    use proptest::prelude::*;

    use super::super::column::parse_columns;
    use super::*;

    /// Returns the value of a column `a.b` with this type, or the reason why it is NULL.
    fn value(type_text: &str, item: &Item) -> String {
        let columns = parse_columns(&format!("a.b:{type_text}")).unwrap();
        let schema = Schema::of(&ItemView::of(&Item::new()), &columns);
        let mut coercions = Vec::new();
        let view = ItemView::of(item);
        let content = content_of(("7", "e"), &view, (&schema, &[]), &mut coercions);
        assert_eq!(content.text(content.sequence_number), "7");
        assert_eq!(content.text(content.event_id), "e");
        assert_eq!(content.text(content.item), item_to_string(item));
        match coercions.as_slice() {
            [] => format!("{:?}", content.value(0)),
            _ => coercions.join("").replace("a_b: ", ""),
        }
    }

    #[test]
    fn values_are_exact_or_named() {
        let (max, over) = ("9".repeat(38), format!("1{}", "0".repeat(38)));
        for (type_text, json, expected) in [
            ("string", r#"{"S":"é"}"#, "Text(\"é\")"),
            ("string", r#"{"N":"1.50"}"#, "Text(\"1.5\")"),
            ("string", r#"{"BOOL":true}"#, "BOOL does not fit string"),
            ("bigint", r#"{"N":"-9223372036854775808"}"#, "Integer(-9223372036854775808)"),
            ("bigint", r#"{"N":"9223372036854775808"}"#, "N does not fit bigint"),
            ("bigint", r#"{"N":"1.5"}"#, "N does not fit bigint"),
            ("bigint", r#"{"N":"1E3"}"#, "Integer(1000)"),
            ("bigint", r#"{"NULL":true}"#, "Null"),
            ("decimal(4,1)", r#"{"N":"7.5"}"#, "Decimal(75)"),
            ("decimal(4,1)", r#"{"N":"999.9"}"#, "Decimal(9999)"),
            ("decimal(4,1)", r#"{"N":"1000"}"#, "N does not fit decimal(4,1)"),
            ("decimal(4,1)", r#"{"N":"7.25"}"#, "N does not fit decimal(4,1)"),
            ("decimal(38,0)", &format!(r#"{{"N":"-{max}"}}"#), &format!("Decimal(-{max})")),
            ("decimal(38,0)", &format!(r#"{{"N":"{over}"}}"#), "N does not fit decimal(38,0)"),
            ("decimal(38,38)", &format!(r#"{{"N":"0.{max}"}}"#), &format!("Decimal({max})")),
            ("decimal(38,10)", r#"{"N":"0"}"#, "Decimal(0)"),
            ("decimal(38,10)", r#"{"N":"1E125"}"#, "N does not fit decimal(38,10)"),
            ("boolean", r#"{"BOOL":false}"#, "Boolean(false)"),
            ("boolean", r#"{"S":"true"}"#, "S does not fit boolean"),
            ("binary", r#"{"B":"AAH/"}"#, "Binary([0, 1, 255])"),
            ("json", r#"{"NS":["2","1"]}"#, "Text(\"[1,2]\")"),
        ] {
            let mut item = item_from_str(&format!(r#"{{"a":{{"M":{{"b":{json}}}}}}}"#)).unwrap();
            let found = value(type_text, &item);
            assert_eq!(found, expected, "{type_text} {json}");
            item.insert("a".to_owned(), attribute_value_from_str(r#"{"S":"no map"}"#).unwrap());
            assert_eq!(value(type_text, &item), "Null");
        }
    }

    proptest! {
        #[test]
        fn decimals_equal_their_numbers(text in "-?[0-9]{1,12}(\\.[0-9]{1,12})?", scale in 0..20_u8) {
            let number: Number = text.parse().unwrap();
            prop_assert_eq!(unscaled(&number.to_string(), scale), number.to_scaled_i128(scale.into()));
        }
    }
}
