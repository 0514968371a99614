//! Whether the tables and indexes that a rule names are as it says.
//!
//! What they are is read elsewhere; nothing is asked here.

use std::collections::BTreeMap;

use super::declaration::CopyRule;

/// What a rule must know of a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableShape {
    /// Its name.
    pub name: String,
    /// Its key attributes, the partition key first.
    pub keys: Vec<String>,
    /// Whether it has a stream with NEW_AND_OLD_IMAGES.
    pub has_both_images: bool,
    /// The partition key attribute of each index, by the index's name.
    pub indexes: BTreeMap<String, String>,
}

/// Looks whether the tables of a rule are as it says.
///
/// # Errors
/// What is not so.
pub fn check_tables(
    rule: &CopyRule,
    origin: &TableShape,
    target: &TableShape,
) -> Result<(), String> {
    if origin.keys != [rule.origin_key.as_str()] {
        return Err(format!(
            "table `{}` has the key ({}), the rule says ({}); origins are found by a partition key alone",
            rule.origin,
            origin.keys.join(", "),
            rule.origin_key
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
    if *found != rule.index_key {
        return Err(format!(
            "index `{}` has the partition key `{found}`, the rule says `{}`",
            rule.index, rule.index_key
        ));
    }
    match rule.attributes.keys().find(|name| target.keys.contains(name)) {
        Some(name) => Err(format!(
            "`{name}` is a key attribute of table `{}` and cannot be copied to",
            rule.target
        )),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::parse_rules;
    use super::*;

    #[test]
    fn what_is_not_so_is_said() {
        let rule = parse_rules(
            "- {name: r, from: products, to: lines, index: by-product, key: {productID: id}, attributes: {n: name}, on-delete: keep}",
        );
        let rule = rule.unwrap().remove(0);
        let shape = |name: &str, keys: &[&str]| TableShape {
            name: name.to_owned(),
            keys: keys.iter().map(|key| (*key).to_owned()).collect(),
            has_both_images: true,
            indexes: BTreeMap::from([("by-product".to_owned(), "productID".to_owned())]),
        };
        let (origin, target) = (shape("products", &["id"]), shape("lines", &["line"]));
        assert_eq!(check_tables(&rule, &origin, &target), Ok(()));
        let no_stream = TableShape { has_both_images: false, ..target.clone() };
        let no_index = TableShape { indexes: BTreeMap::new(), ..target.clone() };
        let other_key = TableShape {
            indexes: BTreeMap::from([("by-product".to_owned(), "x".to_owned())]),
            ..target.clone()
        };
        for (origin, target, expected) in [
            (&shape("products", &["id", "s"]), &target, "has the key (id, s)"),
            (&origin, &no_stream, "table `lines` needs a stream"),
            (&origin, &no_index, "has no index `by-product`"),
            (&origin, &other_key, "has the partition key `x`"),
            (&origin, &shape("lines", &["n"]), "`n` is a key attribute"),
        ] {
            let error = check_tables(&rule, origin, target).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}
