//! Values that do not fit their column: how a row records them, and how to find them in its item.
//!
//! The column is NULL in this case, but a comparison with the archive needs the value.

use model::{AttributeType, AttributeValue, Item, Number};

use super::column::{Column, ColumnType};
use super::discovered::{has_room_for, number_column};
use super::{TTL_RAW, expires_at_ms, whole_seconds};

/// Returns the start of a note about a column, up to the column's type.
fn note_start(column: &str, found: AttributeType) -> String {
    format!("{column}: {} does not fit ", found.descriptor())
}

/// Returns the note for a value of type `found` that does not fit the column.
pub(super) fn note(column: &Column, found: AttributeType) -> String {
    note_of(&column.name, column.column_type, found)
}

/// Returns the note for a value of type `found` that does not fit the column with this name and
/// type.
pub(super) fn note_of(column: &str, column_type: ColumnType, found: AttributeType) -> String {
    note_start(column, found) + &column_type.to_string()
}

/// Returns the value in a row's item that does not fit its column. Returns `None` if the row's
/// `coercions` do not name the column, for example because the attribute is absent. `path` is the path
/// that an archive object records for the column.
#[must_use]
pub fn misfit_of<'i>(
    item: &'i Item,
    column: &str,
    path: &str,
    coercions: &[String],
) -> Option<&'i AttributeValue> {
    let is_told = |value: &&AttributeValue| {
        let start = note_start(column, value.attribute_type());
        coercions.iter().any(|note| note.starts_with(&start))
    };
    if number_column(path) == column {
        // Several attributes may have this column name, and the recorded path may come from another
        // row. In this item, the column belongs to the first attribute with this column name.
        let is_of_column = |name: &str, value: &AttributeValue| {
            value.as_number().is_some_and(|number| !has_room_for(&number))
                && number_column(name) == column
        };
        let mut found = item.iter().filter(|(name, value)| is_of_column(name, value));
        return found.next().map(|(_, value)| value).filter(is_told);
    }
    // A dot in the path may separate two names or be part of one name, so both are tried.
    nested(item, path).into_iter().chain(item.get(path)).find(is_told)
}

/// Returns the numbers in a row's item that may be its time to live, if the row's `coercions` name
/// `_ttl_raw`. A row stores the second of expiry but not the name of the TTL attribute, so several
/// numbers may match. If the row has a second of expiry, the matching numbers differ only in their
/// fractions.
#[must_use]
pub fn ttl_misfits_of(item: &Item, expires_at: Option<i64>, coercions: &[String]) -> Vec<Number> {
    let start = note_start(TTL_RAW, AttributeType::N);
    if !coercions.iter().any(|note| note.starts_with(&start)) {
        return Vec::new();
    }
    let is_misfit = |number: &Number| {
        let text = number.to_string();
        text.parse::<i64>().is_err() && whole_seconds(&text).and_then(expires_at_ms) == expires_at
    };
    item.values().filter_map(AttributeValue::as_number).filter(is_misfit).collect()
}

/// Returns the value at a path of names that are separated by dots.
fn nested<'i>(item: &'i Item, path: &str) -> Option<&'i AttributeValue> {
    let mut names = path.split('.');
    let first = item.get(names.next()?)?;
    names.try_fold(first, |value, name| match value {
        AttributeValue::M(members) => members.get(name),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use model::json::{ItemView, attribute_value_from_str, item_from_str};
    use proptest::prelude::*;

    use super::super::column::{Declaration, Schema};
    use super::super::content::content_of;
    use super::super::discovered::discover;
    use super::super::row::ColumnValue;
    use super::*;

    /// Returns the columns of an item, whether each is NULL, and the notes. The item's keys are `id` and
    /// `s.k`.
    fn written(item: &Item, declared: &str) -> (Schema, Vec<bool>, Vec<String>) {
        let Declaration { columns, discover: discovers } = Declaration::parse(declared).unwrap();
        let mut keys = item.clone();
        keys.retain(|name, _| name == "id" || name == "s.k");
        let (keys, view) = (ItemView::of(&keys), ItemView::of(item));
        let base = Schema::of(&keys, &columns);
        let (schema, mut coercions) =
            if discovers { discover(&base, &view) } else { (base, Vec::new()) };
        let content = content_of(("7", "e"), &view, (&schema, &[]), &mut coercions);
        let nulls = (0..schema.len()).map(|at| content.value(at) == ColumnValue::Null).collect();
        (schema, nulls, coercions)
    }

    #[test]
    fn the_value_that_does_not_fit_is_found() {
        for (declared, item, column, path, expected) in [
            ("", r#"{"id":{"N":"1.5"}}"#, "id", "id", Some(r#"{"N":"1.5"}"#)),
            ("", r#"{"id":{"N":"15"}}"#, "id", "id", None),
            ("", r#"{"s.k":{"N":"0.5"}}"#, "s_k", "s.k", Some(r#"{"N":"0.5"}"#)),
            // The note names the type of the value. The nested value has another type, so the note
            // does not refer to it.
            (
                "",
                r#"{"s.k":{"N":"0.5"},"s":{"M":{"k":{"S":"x"}}}}"#,
                "s_k",
                "s.k",
                Some(r#"{"N":"0.5"}"#),
            ),
            (
                "info.rating:decimal(3,1)",
                r#"{"info":{"M":{"rating":{"N":"8.25"}}}}"#,
                "info_rating",
                "info.rating",
                Some(r#"{"N":"8.25"}"#),
            ),
            (
                "info.rating:decimal(3,1)",
                r#"{"info":{"M":{"rating":{"S":"good"}}}}"#,
                "info_rating",
                "info.rating",
                Some(r#"{"S":"good"}"#),
            ),
            ("n:bigint", r#"{"n":{"NULL":true}}"#, "n", "n", None),
            ("n:bigint", r#"{"id":{"S":"1"}}"#, "n", "n", None),
            ("*", r#"{"n":{"N":"1E100"}}"#, "n_n", "n", Some(r#"{"N":"1E100"}"#)),
            // If two attributes have the same column name, the first one has the column, whichever
            // path is recorded.
            (
                "*",
                r#"{"Price":{"N":"1E100"},"price":{"N":"2E100"}}"#,
                "price_n",
                "price",
                Some(r#"{"N":"1E100"}"#),
            ),
            // `Price` is declared, so it has only its declared column. The column `price_n` belongs
            // to `price`.
            (
                "*,Price:string",
                r#"{"Price":{"N":"1"},"price":{"N":"2E100"}}"#,
                "price_n",
                "price",
                Some(r#"{"N":"2E100"}"#),
            ),
            // This attribute has no column, because another column has that name. Its value must
            // not be found.
            ("*,n_n:bigint", r#"{"n":{"N":"1E100"}}"#, "n_n", "n_n", None),
        ] {
            let item = item_from_str(item).unwrap();
            let (_, _, coercions) = written(&item, declared);
            let found = misfit_of(&item, column, path, &coercions);
            let expected = expected.map(|text| attribute_value_from_str(text).unwrap());
            assert_eq!(found, expected.as_ref(), "{declared} {item:?}: {coercions:?}");
        }
    }

    #[test]
    fn a_time_to_live_that_is_no_integer_is_found_by_its_second() {
        let item = item_from_str(
            r#"{"id":{"S":"1795228199.5"},"n":{"N":"7.5"},"ttl":{"N":"1795228199.75"},"s":{"N":"1795228199"},"far":{"N":"1E30"}}"#,
        )
        .unwrap();
        let noted = [note_of(TTL_RAW, ColumnType::Bigint, AttributeType::N)];
        let found = |expires_at: Option<i64>, noted: &[String]| -> Vec<String> {
            ttl_misfits_of(&item, expires_at, noted).iter().map(ToString::to_string).collect()
        };
        assert_eq!(found(Some(1_795_228_199_000), &noted), ["1795228199.75"]);
        assert_eq!(found(Some(1_795_228_199_000), &[]), [""; 0]);
        let far: Number = "1E30".parse().unwrap();
        assert_eq!(found(None, &noted), [far.to_string()]);
    }

    proptest! {
        /// Goal: a value is found exactly for the NULL columns whose attribute has a value in the
        /// item.
        #[test]
        fn a_value_is_found_for_exactly_the_misfits(
            numbers in prop::collection::vec("-?[1-9][0-9]{0,33}|-?[0-9]{1,6}\\.[0-9]{1,12}", 4),
            texts in prop::collection::vec(any::<bool>(), 4),
            declared in prop::sample::select(&["", "*", "a:bigint,B:decimal(6,2)", "*,b:bigint"][..]),
        ) {
            let value = |(number, is_text): (&String, &bool)| if *is_text {
                AttributeValue::S(number.clone())
            } else {
                AttributeValue::N(number.parse().unwrap())
            };
            let values: Vec<AttributeValue> = numbers.iter().zip(&texts).map(value).collect();
            let item: Item = ["id", "a", "B", "b"].map(str::to_owned).into_iter().zip(values).collect();
            let (schema, nulls, coercions) = written(&item, declared);
            for (column, is_null) in schema.columns().zip(nulls) {
                let path = column.path.to_string();
                let found = misfit_of(&item, &column.name, &path, &coercions);
                let expected = item.get(&path).filter(|_| is_null);
                prop_assert_eq!(found, expected, "{} {:?}", column.name, coercions);
            }
        }
    }
}
