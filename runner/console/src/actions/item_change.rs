//! The update expression and the condition of an item's edit.
//!
//! DynamoDB compares only attributes that a request names, not complete items. The condition names
//! the changed attributes and as many other attributes as an expression may have. The update does
//! not write any other attribute, so a concurrent write to it is preserved.

use model::Item;

use crate::placeholders::Placeholders;
use crate::table_shape::Keys;

/// The maximum number of attributes that an edit changes. DynamoDB allows 300 operators and 4 KB in
/// an expression; an attribute of the condition takes two operators and 18 bytes.
pub(crate) const CHANGES_MAX: usize = 100;

/// An update of the attributes that differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Update {
    /// The number of changed attributes.
    pub(super) changes: usize,
    /// The update expression.
    pub(super) expression: String,
    /// The condition that the item is unchanged since it was read.
    pub(super) condition: String,
}

/// Returns the update that turns the item that was read into the edited item; `None` if they are
/// equal.
pub(super) fn update(
    placeholders: &mut Placeholders,
    read: &Item,
    edited: &Item,
) -> Option<Update> {
    let written: Vec<&str> = edited
        .iter()
        .filter(|(name, value)| read.get(*name) != Some(*value))
        .map(|(name, _)| name.as_str())
        .collect();
    let removed: Vec<&str> =
        read.keys().filter(|name| !edited.contains_key(*name)).map(String::as_str).collect();
    let changed: Vec<&str> = written.iter().chain(&removed).copied().collect();
    if changed.is_empty() {
        return None;
    }
    let condition = as_read(placeholders, read, &changed);
    let mut clauses = Vec::new();
    if !written.is_empty() {
        let mut set = Vec::new();
        for name in written {
            let Some(value) = edited.get(name) else { continue };
            set.push(format!(
                "{} = {}",
                placeholders.name(name),
                placeholders.value(value.clone())
            ));
        }
        clauses.push(format!("SET {}", set.join(", ")));
    }
    if !removed.is_empty() {
        let names: Vec<String> = removed.iter().map(|name| placeholders.name(name)).collect();
        clauses.push(format!("REMOVE {}", names.join(", ")));
    }
    Some(Update { changes: changed.len(), expression: clauses.join(" "), condition })
}

/// Returns a condition that holds if the item is unchanged since it was read. It always includes the
/// attributes `first`, and other attributes up to `CHANGES_MAX` in total.
pub(super) fn as_read(placeholders: &mut Placeholders, read: &Item, first: &[&str]) -> String {
    let others = read.keys().map(String::as_str).filter(|name| !first.contains(name));
    let names = first.iter().copied().chain(others).take(CHANGES_MAX.max(first.len()));
    let conditions = names.map(|name| match read.get(name) {
        Some(value) => {
            format!("{} = {}", placeholders.name(name), placeholders.value(value.clone()))
        }
        None => format!("attribute_not_exists({})", placeholders.name(name)),
    });
    conditions.collect::<Vec<_>>().join(" AND ")
}

/// Returns the condition that no item with the key exists.
pub(super) fn absent(placeholders: &mut Placeholders, keys: &Keys) -> String {
    let names = keys.partition.iter().map(|key| key.name.as_str());
    let conditions = names.map(|name| format!("attribute_not_exists({})", placeholders.name(name)));
    conditions.collect::<Vec<_>>().join(" AND ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::json;

    fn item(text: &str) -> Item {
        json::item_from_str(text).unwrap()
    }

    #[test]
    fn an_edit_writes_what_differs_if_the_item_is_as_it_was_read() {
        let read = item(r#"{"id":{"S":"1"},"a":{"N":"1"},"b":{"S":"x"},"c":{"SS":["p","q"]}}"#);
        let edited = item(r#"{"id":{"S":"1"},"a":{"N":"2"},"c":{"SS":["q","p"]},"d":{"S":"new"}}"#);
        let mut placeholders = Placeholders::default();
        let update = update(&mut placeholders, &read, &edited).unwrap();
        assert_eq!(update.changes, 3);
        assert_eq!(update.expression, "SET #n0 = :v4, #n1 = :v5 REMOVE #n2");
        assert_eq!(
            update.condition,
            "#n0 = :v0 AND attribute_not_exists(#n1) AND #n2 = :v1 AND #n3 = :v2 AND #n4 = :v3"
        );
        let names = r##"{"#n0":"a","#n1":"d","#n2":"b","#n3":"c","#n4":"id"}"##;
        assert_eq!(placeholders.names_json(), names);
        let values = r#"{":v0":{"N":"1"},":v1":{"S":"x"},":v2":{"SS":["p","q"]},":v3":{"S":"1"},":v4":{"N":"2"},":v5":{"S":"new"}}"#;
        assert_eq!(placeholders.values_json(), values);
    }

    #[test]
    fn an_edit_without_a_difference_writes_nothing() {
        let read = item(r#"{"id":{"S":"1"},"n":{"N":"1.0"}}"#);
        let edited = item(r#"{"n":{"N":"1"},"id":{"S":"1"}}"#);
        assert_eq!(update(&mut Placeholders::default(), &read, &edited), None);
    }

    #[test]
    fn the_condition_on_a_wide_item_names_what_changed_and_stays_within_an_expression() {
        let name = |number: usize| format!("a{number:04}");
        let value = |text: &str| model::AttributeValue::from(text);
        let read: Item = (0..1_000).map(|number| (name(number), value("old"))).collect();
        let edited = read.clone().with("a0999", "new");
        let mut placeholders = Placeholders::default();
        let update = update(&mut placeholders, &read, &edited).unwrap();
        assert!(update.condition.starts_with("#n0 = :v0 AND "), "{}", update.condition);
        assert_eq!(placeholders.names[0].1, "a0999");
        assert_eq!(update.condition.matches(" = ").count(), CHANGES_MAX);
        assert!(update.condition.len() < model::limits::EXPRESSION_BYTES_MAX);
    }
}
