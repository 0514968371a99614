//! Compares two versions, attribute by attribute, within maps but not within lists.
//!
//! Values are compared as in DynamoDB: numbers by value, sets without order.

use std::collections::BTreeMap;

use model::{AttributeValue, Item, json};
use serde_json::{Value, json};

/// One attribute that differs.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// The path of the attribute: names separated by dots.
    pub path: String,
    /// The earlier value; `None` if the attribute was added.
    pub from: Option<AttributeValue>,
    /// The later value; `None` if the attribute was removed.
    pub to: Option<AttributeValue>,
}

impl Difference {
    /// Returns `added`, `removed` or `changed`.
    #[must_use]
    pub fn change(&self) -> &'static str {
        match (&self.from, &self.to) {
            (None, _) => "added",
            (_, None) => "removed",
            _ => "changed",
        }
    }

    /// Returns the cells of the difference's row in the report.
    pub(super) fn row(&self) -> Vec<Value> {
        let text = |value: &Option<AttributeValue>| {
            value.as_ref().map_or(Value::Null, |value| {
                let mut text = String::new();
                json::write_attribute_value(&mut text, value);
                json!(text)
            })
        };
        vec![json!(self.path), json!(self.change()), text(&self.from), text(&self.to)]
    }
}

/// Returns the differences, ordered by path. A missing item counts as an item without attributes.
pub(super) fn between(from: Option<&Item>, to: Option<&Item>) -> Vec<Difference> {
    let mut differences = Vec::new();
    let empty = BTreeMap::new();
    let members = |item: Option<&Item>| item.map_or_else(|| empty.clone(), |item| item.0.clone());
    compare("", &members(from), &members(to), &mut differences);
    differences
}

fn compare(
    path: &str,
    from: &BTreeMap<String, AttributeValue>,
    to: &BTreeMap<String, AttributeValue>,
    differences: &mut Vec<Difference>,
) {
    let names: std::collections::BTreeSet<&String> = from.keys().chain(to.keys()).collect();
    for name in names {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        match (from.get(name), to.get(name)) {
            (Some(AttributeValue::M(from)), Some(AttributeValue::M(to))) => {
                compare(&path, from, to, differences);
            }
            (from, to) if from != to => {
                differences.push(Difference { path, from: from.cloned(), to: to.cloned() });
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use model::json::item_from_str;

    use super::*;

    #[test]
    fn differences_name_the_path() {
        let item = |text: &str| item_from_str(text).unwrap();
        let from = item(
            r#"{"a":{"N":"1"},"b":{"M":{"x":{"S":"1"},"y":{"S":"2"}}},"c":{"L":[]},"s":{"NS":["1","2"]}}"#,
        );
        let to = item(
            r#"{"a":{"N":"1.0"},"b":{"M":{"x":{"S":"3"},"z":{"BOOL":true}}},"c":{"M":{}},"s":{"NS":["2","1"]}}"#,
        );
        let rows: Vec<_> = between(Some(&from), Some(&to)).iter().map(Difference::row).collect();
        assert_eq!(
            rows,
            [
                vec![json!("b.x"), json!("changed"), json!(r#"{"S":"1"}"#), json!(r#"{"S":"3"}"#)],
                vec![json!("b.y"), json!("removed"), json!(r#"{"S":"2"}"#), Value::Null],
                vec![json!("b.z"), json!("added"), Value::Null, json!(r#"{"BOOL":true}"#)],
                vec![json!("c"), json!("changed"), json!(r#"{"L":[]}"#), json!(r#"{"M":{}}"#)],
            ]
        );
        assert!(between(Some(&to), Some(&to)).is_empty());
        assert_eq!(between(None, Some(&to)).len(), 4);
    }
}
