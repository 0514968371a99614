//! The check of a rule's tables and indexes against its declaration.
//!
//! The caller reads the descriptions of the tables.

use std::collections::BTreeMap;

use model::KeyAttributeType;

use super::JOB_KEY;
use super::copy_rule::CopyRule;

/// The properties of a table that a rule depends on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableShape {
    /// The name of the table.
    pub name: String,
    /// The key attributes of the table, partition key first.
    pub keys: Vec<String>,
    /// The types of the key attributes of the table and its indexes, by name.
    pub types: BTreeMap<String, KeyAttributeType>,
    /// Whether the table has a stream with NEW_AND_OLD_IMAGES.
    pub has_both_images: bool,
    /// The key attributes of each index, partition key first, by the name of the index.
    pub indexes: BTreeMap<String, Vec<String>>,
}

impl TableShape {
    /// Returns the attributes of an index's sort key; empty if the index has no sort key.
    #[must_use]
    pub fn sort_key_of(&self, index: &str) -> &[String] {
        self.indexes.get(index).and_then(|keys| keys.get(1..)).unwrap_or_default()
    }
}

/// Checks that the tables of a rule match its declaration. Returns the requirements that a copy must
/// meet to be found and written.
///
/// # Errors
/// The first mismatch.
pub fn check_tables(
    rule: &CopyRule,
    origin: &TableShape,
    target: &TableShape,
) -> Result<Vec<String>, String> {
    if origin.keys != [rule.origin_key.as_str()] {
        let what = match origin.keys.as_slice() {
            [found] => {
                format!(
                    "`{found}` as its partition key; write that name to the right of `:` in `key`"
                )
            }
            found => {
                format!("the key ({}); origins must have only a partition key", found.join(", "))
            }
        };
        return Err(format!(
            "the rule declares the origin's key `{}`, but table `{}` has {what}",
            rule.origin_key, rule.origin
        ));
    }
    if let Some(table) = [origin, target].into_iter().find(|table| !table.has_both_images) {
        return Err(format!("table `{}` needs a stream with NEW_AND_OLD_IMAGES", table.name));
    }
    let Some(found) = target.indexes.get(&rule.index) else {
        let names: Vec<&str> = target.indexes.keys().map(String::as_str).collect();
        return Err(format!(
            "table `{}` has no index `{}`; it has: {}",
            rule.target,
            rule.index,
            names.join(", ")
        ));
    };
    let found = found.first().map_or("", String::as_str);
    let sort = target.sort_key_of(&rule.index);
    if found != rule.index_key {
        return Err(format!(
            "index `{}` has the partition key `{found}`, but the rule declares `{}`",
            rule.index, rule.index_key
        ));
    }
    if let Some(name) = rule.attributes.keys().find(|name| target.keys.contains(name)) {
        return Err(format!(
            "`{name}` is a key attribute of table `{}` and cannot be copied to",
            rule.target
        ));
    }
    if let Some(name) = sort.iter().find(|name| rule.attributes.contains_key(*name)) {
        return Err(format!(
            "`{name}` is the sort key of index `{}`, and the index does not contain copies without it; name an index with another sort key or without one",
            rule.index
        ));
    }
    check_types(rule, origin, target)?;
    Ok(advice(rule, target, sort))
}

/// Checks that the key of the index has the same type as the key of the origin. With different
/// types, no copy would be found.
fn check_types(rule: &CopyRule, origin: &TableShape, target: &TableShape) -> Result<(), String> {
    let CopyRule { origin_key, index_key, index, .. } = rule;
    let types = origin.types.get(origin_key).zip(target.types.get(index_key));
    match types.filter(|(of_origin, of_index)| of_origin != of_index) {
        None => Ok(()),
        Some((of_origin, of_index)) => Err(format!(
            "`{index_key}`, the key of index `{index}` of table `{}`, has type {}, and `{origin_key}`, the key of table `{}`, has type {}, so a query of the index would find no copy; name an index whose key has type {}",
            rule.target,
            of_index.descriptor(),
            rule.origin,
            of_origin.descriptor(),
            of_origin.descriptor(),
        )),
    }
}

/// Checks that a table can be the jobs table.
///
/// # Errors
/// The table does not have the required key or stream.
pub fn check_jobs_table(table: &TableShape) -> Result<(), String> {
    let name = &table.name;
    let found = table.keys.iter().map(|key| {
        let key_type = table.types.get(key).map_or("", |key_type| key_type.descriptor());
        format!("{key} {key_type}")
    });
    let found = found.collect::<Vec<_>>().join(", ");
    let wanted = format!("{JOB_KEY} {}", KeyAttributeType::S.descriptor());
    if found != wanted {
        return Err(format!(
            "table `{name}` has the key ({found}), but the jobs table needs ({wanted}); recreate the table, or name another one"
        ));
    }
    if !table.has_both_images {
        return Err(format!(
            "table `{name}` needs a stream with NEW_AND_OLD_IMAGES, because its records continue jobs with many copies"
        ));
    }
    Ok(())
}

/// Returns the requirements that a copy must meet to be found and written.
fn advice(rule: &CopyRule, target: &TableShape, sort: &[String]) -> Vec<String> {
    let sort = sort.iter().filter(|name| !target.keys.contains(name)).map(|name| {
        format!(
            "a copy without `{name}`, the sort key of index `{}`, is not in the index and does not follow its origin",
            rule.index
        )
    });
    let keys = target.indexes.iter().flat_map(|(index, keys)| {
        let copied = keys.iter().filter(|name| rule.attributes.contains_key(*name));
        copied.map(move |name| {
            format!(
                "`{name}` is a key attribute of index `{index}`, so a copy cannot be written with an empty `{name}` or one of another type"
            )
        })
    });
    sort.chain(keys).collect()
}

#[cfg(test)]
mod tests {
    use super::super::parse_rules;
    use super::*;

    #[test]
    fn mismatches_are_reported() {
        let rule = parse_rules(
            "- {name: r, from: products, to: lines, index: by-product, key: {productID: id}, attributes: {n: name}, on-delete: keep}",
        );
        let rule = rule.unwrap().remove(0);
        let shape = |name: &str, keys: &[&str]| TableShape {
            name: name.to_owned(),
            keys: keys.iter().map(|key| (*key).to_owned()).collect(),
            types: BTreeMap::from(["id", "productID"].map(|n| (n.to_owned(), KeyAttributeType::N))),
            has_both_images: true,
            indexes: BTreeMap::from([("by-product".to_owned(), vec!["productID".to_owned()])]),
        };
        let (origin, target) = (shape("products", &["id"]), shape("lines", &["line"]));
        assert_eq!(check_tables(&rule, &origin, &target), Ok(Vec::new()));
        let with = |index: &str, keys: [&str; 2]| {
            let mut target = target.clone();
            target.indexes.insert(index.to_owned(), keys.map(str::to_owned).to_vec());
            target
        };
        for (target, expected) in [
            (with("by-product", ["productID", "line"]), None),
            (with("by-product", ["productID", "at"]), Some("a copy without `at`, the sort key")),
            (with("by-name", ["n", "line"]), Some("`n` is a key attribute of index `by-name`")),
        ] {
            let advice = check_tables(&rule, &origin, &target).unwrap();
            assert_eq!(advice.len(), usize::from(expected.is_some()), "{advice:?}");
            assert!(advice.iter().all(|a| a.contains(expected.unwrap())), "{advice:?}");
        }
        let mut several = target.clone();
        let keys = ["productID", "day", "at", "line"].map(str::to_owned).to_vec();
        several.indexes.insert("by-product".to_owned(), keys);
        assert_eq!(several.sort_key_of("by-product"), ["day", "at", "line"]);
        assert_eq!(check_tables(&rule, &origin, &several).unwrap().len(), 2);
        several.indexes.get_mut("by-product").unwrap().push("n".to_owned());
        assert!(
            check_tables(&rule, &origin, &several).unwrap_err().contains("`n` is the sort key")
        );
        assert!(target.sort_key_of("by-product").is_empty());
        let no_stream = TableShape { has_both_images: false, ..target.clone() };
        let no_index = TableShape { indexes: BTreeMap::new(), ..target.clone() };
        let other_key = TableShape {
            indexes: BTreeMap::from([("by-product".to_owned(), vec!["x".to_owned()])]),
            ..target.clone()
        };
        let other_type = TableShape {
            types: BTreeMap::from([("id".to_owned(), KeyAttributeType::S)]),
            ..origin.clone()
        };
        for (origin, target, expected) in [
            (
                &other_type,
                &target,
                "has type N, and `id`, the key of table `products`, has type S, so a query of the index would find no copy; name an index whose key has type S",
            ),
            (&shape("products", &["id", "s"]), &target, "has the key (id, s); origins must have"),
            (&shape("products", &["at"]), &target, "has `at` as its partition key; write that"),
            (&origin, &no_stream, "table `lines` needs a stream"),
            (&origin, &no_index, "has no index `by-product`"),
            (&origin, &other_key, "has the partition key `x`"),
            (&origin, &shape("lines", &["n"]), "`n` is a key attribute"),
            (&origin, &with("by-product", ["productID", "n"]), "`n` is the sort key of index"),
        ] {
            let error = check_tables(&rule, origin, target).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn a_table_that_cannot_hold_jobs_is_refused() {
        let shape = |keys: &[(&str, KeyAttributeType)], has_both_images| TableShape {
            name: "jobs".to_owned(),
            keys: keys.iter().map(|(name, _)| (*name).to_owned()).collect(),
            types: keys.iter().map(|(name, key_type)| ((*name).to_owned(), *key_type)).collect(),
            has_both_images,
            indexes: BTreeMap::new(),
        };
        let (text, number) = (KeyAttributeType::S, KeyAttributeType::N);
        assert_eq!(check_jobs_table(&shape(&[("job", text)], true)), Ok(()));
        for (shape, expected) in [
            (shape(&[("job", number)], true), "has the key (job N)"),
            (shape(&[("id", text)], true), "has the key (id S), but the jobs table needs (job S)"),
            (shape(&[("job", text), ("at", number)], true), "has the key (job S, at N)"),
            (shape(&[("job", text)], false), "needs a stream with NEW_AND_OLD_IMAGES"),
        ] {
            let error = check_jobs_table(&shape).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}
