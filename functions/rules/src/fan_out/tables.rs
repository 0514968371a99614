//! The check of a rule's tables and indexes against its declaration.
//!
//! The caller reads the descriptions of the tables.

use std::collections::BTreeMap;

use model::KeyAttributeType;
use thiserror::Error;

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

/// A table that does not match the declaration of a rule, or cannot be the jobs table.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TableMismatch {
    /// The origin has another key than the rule declares.
    #[error(
        "the rule declares the origin's key `{declared}`, but table `{table}` has {}",
        key_advice(found)
    )]
    OriginKey {
        /// The origin.
        table: String,
        /// The key in the declaration.
        declared: String,
        /// The key attributes of the origin.
        found: Vec<String>,
    },
    /// A table without a stream with both images.
    #[error("table `{0}` needs a stream with NEW_AND_OLD_IMAGES")]
    NoImages(String),
    /// An index that the target does not have.
    #[error("table `{table}` has no index `{index}`; it has: {}", found.join(", "))]
    NoIndex {
        /// The target.
        table: String,
        /// The index in the declaration.
        index: String,
        /// The indexes of the target.
        found: Vec<String>,
    },
    /// The index has another partition key than the rule declares.
    #[error("index `{index}` has the partition key `{found}`, but the rule declares `{declared}`")]
    IndexKey {
        /// The index.
        index: String,
        /// The partition key of the index.
        found: String,
        /// The key in the declaration.
        declared: String,
    },
    /// A copied attribute that is a key attribute of the target.
    #[error("`{attribute}` is a key attribute of table `{table}` and cannot be copied to")]
    CopiedKey {
        /// The attribute.
        attribute: String,
        /// The target.
        table: String,
    },
    /// A copied attribute that is the sort key of the index.
    #[error(
        "`{attribute}` is the sort key of index `{index}`, and the index does not contain copies without it; name an index with another sort key or without one"
    )]
    CopiedSortKey {
        /// The attribute.
        attribute: String,
        /// The index.
        index: String,
    },
    /// The keys of the index and the origin have different types.
    #[error(
        "`{}`, the key of index `{}` of table `{}`, has type {of_index}, and `{}`, the key of table `{}`, has type {of_origin}, so a query of the index would find no copy; name an index whose key has type {of_origin}",
        rule.index_key, rule.index, rule.target, rule.origin_key, rule.origin
    )]
    KeyTypes {
        /// The rule.
        rule: Box<CopyRule>,
        /// The type of the index's key.
        of_index: &'static str,
        /// The type of the origin's key.
        of_origin: &'static str,
    },
    /// A jobs table with another key than it needs.
    #[error(
        "table `{table}` has the key ({found}), but the jobs table needs ({wanted}); recreate the table, or name another one"
    )]
    JobsKey {
        /// The table.
        table: String,
        /// The key attributes of the table with their types.
        found: String,
        /// The required key.
        wanted: String,
    },
    /// A jobs table without a stream with both images.
    #[error(
        "table `{0}` needs a stream with NEW_AND_OLD_IMAGES, because its records continue jobs with many copies"
    )]
    NoJobImages(String),
}

/// Describes the key of an origin that is not the declared key, and what to change.
fn key_advice(found: &[String]) -> String {
    match found {
        [found] => {
            format!("`{found}` as its partition key; write that name to the right of `:` in `key`")
        }
        found => format!("the key ({}); origins must have only a partition key", found.join(", ")),
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
) -> Result<Vec<String>, TableMismatch> {
    if origin.keys != [rule.origin_key.as_str()] {
        return Err(TableMismatch::OriginKey {
            table: rule.origin.clone(),
            declared: rule.origin_key.clone(),
            found: origin.keys.clone(),
        });
    }
    if let Some(table) = [origin, target].into_iter().find(|table| !table.has_both_images) {
        return Err(TableMismatch::NoImages(table.name.clone()));
    }
    let Some(found) = target.indexes.get(&rule.index) else {
        return Err(TableMismatch::NoIndex {
            table: rule.target.clone(),
            index: rule.index.clone(),
            found: target.indexes.keys().cloned().collect(),
        });
    };
    let found = found.first().map_or("", String::as_str);
    let sort = target.sort_key_of(&rule.index);
    if found != rule.index_key {
        return Err(TableMismatch::IndexKey {
            index: rule.index.clone(),
            found: found.to_owned(),
            declared: rule.index_key.clone(),
        });
    }
    if let Some(name) = rule.attributes.keys().find(|name| target.keys.contains(name)) {
        let (attribute, table) = (name.clone(), rule.target.clone());
        return Err(TableMismatch::CopiedKey { attribute, table });
    }
    if let Some(name) = sort.iter().find(|name| rule.attributes.contains_key(*name)) {
        let (attribute, index) = (name.clone(), rule.index.clone());
        return Err(TableMismatch::CopiedSortKey { attribute, index });
    }
    check_types(rule, origin, target)?;
    Ok(advice(rule, target, sort))
}

/// Checks that the key of the index has the same type as the key of the origin. With different
/// types, no copy would be found.
fn check_types(
    rule: &CopyRule,
    origin: &TableShape,
    target: &TableShape,
) -> Result<(), TableMismatch> {
    let types = origin.types.get(&rule.origin_key).zip(target.types.get(&rule.index_key));
    match types.filter(|(of_origin, of_index)| of_origin != of_index) {
        None => Ok(()),
        Some((of_origin, of_index)) => Err(TableMismatch::KeyTypes {
            rule: Box::new(rule.clone()),
            of_index: of_index.descriptor(),
            of_origin: of_origin.descriptor(),
        }),
    }
}

/// Checks that a table can be the jobs table.
///
/// # Errors
/// The table does not have the required key or stream.
pub fn check_jobs_table(table: &TableShape) -> Result<(), TableMismatch> {
    let found = table.keys.iter().map(|key| {
        let key_type = table.types.get(key).map_or("", |key_type| key_type.descriptor());
        format!("{key} {key_type}")
    });
    let found = found.collect::<Vec<_>>().join(", ");
    let wanted = format!("{JOB_KEY} {}", KeyAttributeType::S.descriptor());
    if found != wanted {
        return Err(TableMismatch::JobsKey { table: table.name.clone(), found, wanted });
    }
    if !table.has_both_images {
        return Err(TableMismatch::NoJobImages(table.name.clone()));
    }
    Ok(())
}

/// Returns the requirements that a copy must meet to be found and written.
fn advice(rule: &CopyRule, target: &TableShape, sort: &[String]) -> Vec<String> {
    let sort = sort.iter().filter(|name| !target.keys.contains(name)).map(|name| {
        format!(
            "a copy without `{name}`, the sort key of index `{}`, is not in the index and is not updated with its origin",
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
        let error = check_tables(&rule, &origin, &several).unwrap_err().to_string();
        assert!(error.contains("`n` is the sort key"), "{error}");
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
            let error = check_tables(&rule, origin, target).unwrap_err().to_string();
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
            let error = check_jobs_table(&shape).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
