//! Checks that replicas of the same log have the same bytes, and that an index matches its table.

use std::collections::BTreeMap;

use model::Item;

use crate::request::{KEY, OWNER};

/// All keys and values of one replica's state.
pub type Dump = Vec<(Vec<u8>, Vec<u8>)>;

/// Compares each replica with the first replica.
#[must_use]
pub fn check_equal(dumps: &[(String, Dump)]) -> Vec<String> {
    let Some(((first, expected), others)) = dumps.split_first() else { return Vec::new() };
    others
        .iter()
        .filter(|(_, dump)| dump != expected)
        .map(|(name, dump)| {
            let expected: BTreeMap<_, _> = expected.iter().map(|(k, v)| (k, v)).collect();
            let found: BTreeMap<_, _> = dump.iter().map(|(k, v)| (k, v)).collect();
            let keys = expected.keys().chain(found.keys());
            let different = keys.filter(|key| expected.get(*key) != found.get(*key)).min();
            let shown = different.map(|key| key.escape_ascii().to_string());
            format!(
                "{name} ({} keys) differs from {first} ({} keys); first different key: {}",
                dump.len(),
                expected.len(),
                shown.unwrap_or_default()
            )
        })
        .collect()
}

/// Compares a global index over the attribute [`OWNER`] with its table.
#[must_use]
pub fn check_index(table: &BTreeMap<String, Item>, entries: &[Item]) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut found = BTreeMap::new();
    for entry in entries {
        let key = entry.get(KEY).and_then(|key| key.as_str()).unwrap_or_default();
        if found.insert(key.to_owned(), entry).is_some() {
            wrong.push(format!("{key}: the index has two entries for this item"));
        }
    }
    for (key, item) in table.iter().filter(|(_, item)| item.contains_key(OWNER)) {
        match found.remove(key) {
            None => wrong.push(format!("{key}: the index has no entry for this item")),
            Some(entry) if entry != item => {
                wrong.push(format!("{key}: the index entry differs from the item"));
            }
            Some(_) => {}
        }
    }
    wrong.extend(
        found
            .into_keys()
            .map(|key| format!("{key}: the index has an entry, but the table has no item")),
    );
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_difference_is_shown() {
        let dump = |value: u8| vec![(b"a".to_vec(), vec![1]), (b"b".to_vec(), vec![value])];
        let named = |name: &str, value| (name.to_owned(), dump(value));
        assert!(check_equal(&[named("1", 1), named("2", 1), named("3", 1)]).is_empty());
        let wrong = check_equal(&[named("1", 1), named("2", 1), named("3", 2)]);
        assert_eq!(wrong, ["3 (2 keys) differs from 1 (2 keys); first different key: b"]);
        let shorter = ("2".to_owned(), dump(1)[..1].to_vec());
        assert!(check_equal(&[named("1", 1), shorter])[0].contains("first different key: b"));
    }

    #[test]
    fn an_index_equals_its_table() {
        let item = |owner: &str| Item::new().with(KEY, "k").with(OWNER, owner);
        let table =
            BTreeMap::from([("k".to_owned(), item("x")), ("other".to_owned(), Item::new())]);
        assert!(check_index(&table, &[item("x")]).is_empty());
        assert!(check_index(&table, &[])[0].contains("no entry"));
        assert!(check_index(&table, &[item("y")])[0].contains("differs from the item"));
        assert!(check_index(&table, &[item("x"), item("x")])[0].contains("two entries"));
        assert!(check_index(&BTreeMap::new(), &[item("x")])[0].contains("the table has no item"));
    }
}
