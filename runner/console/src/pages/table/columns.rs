//! The columns of a table of items: the attributes that it shows, and their order.

use std::collections::BTreeMap;

use crate::item_json::ItemJson;
use crate::table_shape::Keys;

/// The maximum number of columns that a page shows.
pub(super) const COLUMNS_MAX: usize = 40;

/// Returns the names of all attributes of some items: first the key attributes, then the others,
/// ordered by falling frequency.
pub(super) fn columns<'i>(items: &'i [ItemJson], keys: &[&'i Keys]) -> Vec<&'i str> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for name in items.iter().flat_map(|item| item.0.keys()) {
        *counts.entry(name).or_default() += 1;
    }
    let mut columns = Vec::new();
    for key in keys.iter().flat_map(|keys| keys.all()) {
        if counts.remove(key.name.as_str()).is_some() {
            columns.push(key.name.as_str());
        }
    }
    let mut others: Vec<(&str, usize)> = counts.into_iter().collect();
    // The sort is stable, so equally frequent attributes keep the order of their names.
    others.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    columns.extend(others.into_iter().map(|(name, _)| name));
    columns
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{KeyAttribute, KeyAttributeType, json};

    #[test]
    fn keys_come_first_and_rare_attributes_last() {
        let texts = [
            r#"{"year":{"N":"1"},"a":{"N":"1"},"z":{"N":"1"},"b":{"N":"1"}}"#,
            r#"{"year":{"N":"1"},"title":{"S":"t"},"z":{"N":"1"}}"#,
        ];
        let items = texts.map(|text| ItemJson(json::item_from_str(text).unwrap()));
        let key = |name: &str| KeyAttribute {
            name: name.to_owned(),
            attribute_type: KeyAttributeType::S,
        };
        let table = Keys { partition: vec![key("year")], sort: vec![key("title")] };
        let index = Keys { partition: vec![key("b")], sort: vec![key("absent")] };
        assert_eq!(columns(&items, &[&table, &index]), ["year", "title", "b", "z", "a"]);
        assert!(columns(&[], &[&table]).is_empty());
    }
}
