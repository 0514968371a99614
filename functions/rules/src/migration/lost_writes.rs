//! The check of updates in the old shape while items are changed in place, or restored by a revert.
//!
//! Clients that use the old shape may update one attribute of an item that already has the new
//! shape. The item then has the newer value under the old name, and an older value under the new
//! name. The transform must copy the newer value to the new name, and `inverse` must keep it. The
//! check tries both with sample items. It proves nothing about other items.
//!
//! The check tries only attributes that the transform removes or changes, because the other
//! attributes have the same value in both shapes.

use std::collections::BTreeSet;
use std::fmt;

use model::{AttributeValue, Item, Number};

use super::plan::{Direction, Kind};
use super::{Migration, Rewrite};
use crate::marks::is_reserved;

/// The maximum number of items on which an attribute is tried. The items of a table rarely have
/// more than this number of shapes.
const ITEMS_MAX: usize = 20;
/// The maximum number of values that are written to an attribute of an item.
const VALUES_MAX: usize = 4;

/// An attribute update that a plan loses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostWrite {
    /// The attribute, by its name in the old shape.
    pub attribute: String,
    /// The direction that loses the update: forward by the transform, reverse by `inverse`.
    pub direction: Direction,
    /// The item on which the update was tried: its table and key.
    pub item: String,
    /// An attribute that the transform adds, which probably contains the value in the new shape.
    pub new_name: Option<String>,
    /// Whether the attribute has the same name in both shapes.
    pub keeps_name: bool,
}

impl fmt::Display for LostWrite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (old, item) = (&self.attribute, &self.item);
        let new = self.new_name.as_deref().unwrap_or("new_name");
        match self.direction {
            Direction::Forward => write!(
                f,
                "{item}: a client of the old shape updates `{old}` after the item was changed, and the transform drops the newer value"
            )?,
            Direction::Reverse => write!(
                f,
                "{item}: during a revert, a client updates `{old}` before the item is changed back, and `inverse` overwrites the newer value"
            )?,
        }
        match (self.keeps_name, self.direction) {
            (true, _) => write!(
                f,
                "; `{old}` has the same name in both shapes, so no program can tell its values apart: write the new value to another attribute"
            ),
            (false, Direction::Forward) => write!(
                f,
                "; let the old name take precedence: `if has(\"{old}\") then .{new} = .{old} | del(.{old}) else . end`"
            ),
            (false, Direction::Reverse) => write!(
                f,
                "; keep an old name that is present: `if has(\"{new}\") then (if has(\"{old}\") then . else .{old} = .{new} end) | del(.{new}) else . end`"
            ),
        }
    }
}

/// An item in both shapes.
struct Shapes<'i> {
    old: &'i Item,
    new: Item,
}

impl Migration {
    /// Returns the updates of sample items that a change in place loses: the first for each
    /// attribute and direction. Without `inverse`, only the transform is tried. Other kinds of
    /// migration copy items, so their result is empty.
    #[must_use]
    pub fn lost_writes(
        &self,
        inverse: Option<&Self>,
        table: &str,
        items: &[Item],
    ) -> Vec<LostWrite> {
        if self.kind != Kind::InPlace {
            return Vec::new();
        }
        let shapes = items.iter().filter_map(|old| match self.rewrite(table, old) {
            Ok(Rewrite::Change(new)) => Some(Shapes { old, new }),
            Ok(Rewrite::Keep | Rewrite::Delete) | Err(_) => None,
        });
        let shapes: Vec<Shapes<'_>> = shapes.collect();
        let names: BTreeSet<&String> = shapes.iter().flat_map(Shapes::changed).collect();
        let mut lost = Vec::new();
        for name in names {
            let values = values(name, items);
            let tried: Vec<&Shapes<'_>> = shapes
                .iter()
                .filter(|shapes| shapes.changed().any(|changed| changed == name))
                .take(ITEMS_MAX)
                .collect();
            for (direction, way) in
                [(Direction::Forward, Some(self)), (Direction::Reverse, inverse)]
            {
                let Some(way) = way else { continue };
                let loses = |shapes: &&&Shapes<'_>| {
                    let values = values.iter().filter(|value| shapes.old.get(name) != Some(*value));
                    values.take(VALUES_MAX).any(|value| match direction {
                        Direction::Forward => self.drops(table, shapes, name, value),
                        Direction::Reverse => self.overwrites(way, table, shapes, name, value),
                    })
                };
                if let Some(shapes) = tried.iter().find(loses) {
                    lost.push(self.lost_write(table, shapes, name, &values, direction));
                }
            }
        }
        lost
    }

    fn lost_write(
        &self,
        table: &str,
        shapes: &Shapes<'_>,
        name: &str,
        values: &[AttributeValue],
        direction: Direction,
    ) -> LostWrite {
        let updated =
            values.iter().filter_map(|value| self.made(table, &with(shapes.old, name, value)));
        let updated: Vec<Item> = updated.collect();
        let is_new = |new: &&String| !shapes.old.contains_key(*new);
        let has_same_value = |new: &&String| shapes.new.get(*new) == shapes.old.get(name);
        let follows_updates =
            |new: &&String| updated.iter().any(|item| item.get(*new) != shapes.new.get(*new));
        let added = || shapes.new.keys().filter(is_new);
        LostWrite {
            attribute: name.to_owned(),
            direction,
            item: self
                .source_item(table, shapes.old)
                .map_or_else(|_| table.to_owned(), |item| item.to_string()),
            new_name: added()
                .find(has_same_value)
                .or_else(|| added().find(follows_updates))
                .or_else(|| added().next())
                .cloned(),
            keeps_name: shapes.new.contains_key(name),
        }
    }

    /// Returns the result of the change in place; `None` if the transform refuses the item.
    fn made(&self, table: &str, item: &Item) -> Option<Item> {
        match self.rewrite(table, item) {
            Ok(Rewrite::Change(made)) => Some(made),
            Ok(Rewrite::Keep) => Some(item.clone()),
            Ok(Rewrite::Delete) | Err(_) => None,
        }
    }

    /// Returns whether the transform drops a value that a client wrote to the changed item. The
    /// result must be the same as if the client had written the value before the change.
    fn drops(&self, table: &str, shapes: &Shapes<'_>, name: &str, value: &AttributeValue) -> bool {
        let wanted = self.made(table, &with(shapes.old, name, value));
        let made = self.made(table, &with(&shapes.new, name, value));
        // An item that the transform refuses is not changed, and is reported as refused.
        let (Some(wanted), Some(made)) = (wanted, made) else { return false };
        let mut names = wanted.keys().chain(shapes.new.keys());
        names.any(|name| {
            let is_affected = wanted.get(name) != shapes.new.get(name);
            is_affected && made.get(name) != wanted.get(name)
        })
    }

    /// Returns whether `inverse` overwrites a value that a client wrote to the changed item.
    fn overwrites(
        &self,
        inverse: &Self,
        table: &str,
        shapes: &Shapes<'_>,
        name: &str,
        value: &AttributeValue,
    ) -> bool {
        // A value that the transform refuses is not a valid value of the old shape.
        let Some(changed) = self.made(table, &with(shapes.old, name, value)) else { return false };
        let Some(made) = inverse.made(table, &with(&shapes.new, name, value)) else { return false };
        // If `inverse` maps several values to one value, its result for this value is compared.
        made.get(name) != Some(value) && Some(made) != inverse.made(table, &changed)
    }
}

impl Shapes<'_> {
    /// Returns the names of the attributes that the new shape lacks or has with another value.
    fn changed(&self) -> impl Iterator<Item = &String> {
        let attributes = self.old.iter();
        attributes
            .filter(move |(name, value)| self.new.get(*name) != Some(*value) && !is_reserved(name))
            .map(|(name, _)| name)
    }
}

/// Returns an item in which an attribute has this value.
fn with(item: &Item, name: &str, value: &AttributeValue) -> Item {
    let mut item = item.clone();
    item.insert(name.to_owned(), value.clone());
    item
}

/// Returns values that a client may write to an attribute: values of the sample items, so that
/// programs that parse them do not fail, and other values of the same types.
fn values(name: &str, items: &[Item]) -> Vec<AttributeValue> {
    let mut known: Vec<AttributeValue> = Vec::new();
    let add = |values: &mut Vec<AttributeValue>, value: AttributeValue| {
        if !values.contains(&value) {
            values.push(value);
        }
    };
    let present = || items.iter().filter_map(|item| item.get(name));
    // Two values of each type differ from the value of any item.
    for value in present() {
        let is_type = |known: &&AttributeValue| known.attribute_type() == value.attribute_type();
        if known.iter().filter(is_type).count() < 2 {
            add(&mut known, value.clone());
        }
    }
    for value in known.clone() {
        add(&mut known, other(&value));
    }
    known
}

/// Returns another value of the same type.
fn other(value: &AttributeValue) -> AttributeValue {
    match value {
        // A digit is appended, because a string that contains a number must remain a number.
        AttributeValue::S(text) => AttributeValue::S(format!("{text}1")),
        AttributeValue::N(number) => {
            let one = Number::from(1_u64);
            AttributeValue::N(if *number == one { Number::from(2_u64) } else { one })
        }
        AttributeValue::Bool(is_true) => AttributeValue::Bool(!is_true),
        AttributeValue::L(members) if members.is_empty() => {
            AttributeValue::L(vec![AttributeValue::Null])
        }
        AttributeValue::L(_) => AttributeValue::L(Vec::new()),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use model::json::item_from_str;
    use model::{KeyAttribute, KeyAttributeType, KeySchema};

    use super::super::plan::{Backfill, FUNCTION_SECONDS, Output, Plan, Source};
    use super::*;

    const RENAMED: &str = "if has(\"status\") then .state = .status | del(.status) else . end";
    const OVERWRITES: &str = "if has(\"state\") then .status = .state | del(.state) else . end";
    const KEEPS: &str = "if has(\"state\") then (if has(\"status\") then . else .status = .state end) | del(.state) else . end";
    /// An inverse that keeps every value except `false` and `null`.
    const KEEPS_TRUE: &str = "if has(\"state\") then .status //= .state | del(.state) else . end";
    const TO_NUMBER: &str = "if has(\"cost\") then .price = (.cost | tonumber) | del(.cost) else . end | .kind //= \"x\"";

    /// Returns the transform and the inverse of a table `orders`.
    fn both(transform: &str, inverse: &str) -> (Migration, Option<Migration>) {
        let source = |transform: &str| Source {
            table: "orders".to_owned(),
            items: vec![Output {
                to: "orders".to_owned(),
                transform: transform.to_owned(),
                key: BTreeMap::new(),
            }],
            split: None,
            archive: false,
        };
        let inverses = if inverse.is_empty() { Vec::new() } else { vec![source(inverse)] };
        let plan = Plan {
            migration: "m".to_owned(),
            kind: Kind::InPlace,
            from: vec![source(transform)],
            inverse: inverses,
            backfill: Backfill::Scan,
            segments: 1,
            gate_seconds: 1,
            settle_seconds: 5,
            function_seconds: FUNCTION_SECONDS,
            route: None,
        };
        let attribute_type = KeyAttributeType::S;
        let partition = KeyAttribute { name: "id".to_owned(), attribute_type };
        let schemas = [("orders".to_owned(), KeySchema { partition, sort: None })].into();
        let compile = |direction| Migration::compile(&plan, direction, &schemas).unwrap();
        let back = (!inverse.is_empty()).then(|| compile(Direction::Reverse));
        (compile(Direction::Forward), back)
    }

    /// Returns an item of `orders` with more attributes, in DynamoDB JSON.
    fn order(attributes: &str) -> Item {
        item_from_str(&format!(r#"{{"id":{{"S":"7"}},{attributes}}}"#)).unwrap()
    }

    /// The cases: the transform, the inverse, the attributes of the items, and the expected lost
    /// updates.
    const CASES: [(&str, &str, &[&str], &str); 16] = [
        (RENAMED, OVERWRITES, &[r#""status":{"S":"open"}"#], "reverse status, state"),
        (RENAMED, KEEPS, &[r#""status":{"S":"open"}"#], ""),
        (RENAMED, "", &[r#""status":{"S":"open"}"#], ""),
        // These updates become `false` and `null`.
        (RENAMED, KEEPS_TRUE, &[r#""status":{"S":"open"}"#], ""),
        (RENAMED, KEEPS_TRUE, &[r#""status":{"BOOL":true}"#], "reverse status, state"),
        (
            RENAMED,
            KEEPS_TRUE,
            &[r#""status":{"S":"open"}"#, r#""status":{"NULL":true}"#],
            "reverse status, state",
        ),
        (RENAMED, KEEPS, &[r#""status":{"BOOL":true}"#, r#""status":{"NULL":true}"#], ""),
        // No item has the attribute, or all items have the new shape.
        (RENAMED, OVERWRITES, &[r#""total":{"N":"1"}"#], ""),
        (RENAMED, OVERWRITES, &[r#""state":{"S":"open"}"#], ""),
        // The transform keeps the older value.
        (
            "if has(\"status\") then .state //= .status | del(.status) else . end",
            KEEPS,
            &[r#""status":{"S":"open"}"#],
            "forward status, state",
        ),
        // Values that cannot be parsed are not valid values of the old shape.
        (
            TO_NUMBER,
            "if has(\"price\") then .cost = (.price | tostring) | del(.price, .kind) else . end",
            &[r#""cost":{"S":"1.5"}"#, r#""cost":{"S":"2"}"#],
            "reverse cost, price",
        ),
        (
            TO_NUMBER,
            "if has(\"price\") then (if has(\"cost\") then . else .cost = (.price | tostring) end) | del(.price, .kind) else . end",
            &[r#""cost":{"S":"1.5"}"#, r#""cost":{"S":"2"}"#],
            "",
        ),
        // The attribute keeps its name, and a marker attribute shows that it has the new value.
        (
            "if has(\"v\") then . else .price |= . * 100 | .v = 2 end",
            "if has(\"v\") then .price |= . / 100 | del(.v) else . end",
            &[r#""price":{"N":"3"}"#],
            "forward price, v, same name; reverse price, v, same name",
        ),
        // An update of one of two attributes that the transform merges into one.
        (
            "if has(\"first\") then .name = \"\\(.first) \\(.last)\" | del(.first, .last) else . end",
            "",
            &[r#""first":{"S":"A"},"last":{"S":"B"}"#],
            "forward first, name; forward last, name",
        ),
        // An attribute that the transform drops, and an attribute that the transform counts.
        ("del(.tmp)", "", &[r#""tmp":{"S":"x"}"#], ""),
        (
            "if has(\"status\") then .state = .status | .log += [.status] | del(.status) else . end",
            "",
            &[r#""status":{"S":"open"}"#],
            "forward status, state",
        ),
    ];

    fn items(attributes: &[&str]) -> Vec<Item> {
        attributes.iter().map(|attributes| order(attributes)).collect()
    }

    #[test]
    fn lost_updates_are_found() {
        for (transform, inverse, attributes, expected) in CASES {
            let (forward, inverse) = both(transform, inverse);
            let found = forward.lost_writes(inverse.as_ref(), "orders", &items(attributes));
            let line = |lost: &LostWrite| {
                let direction = match lost.direction {
                    Direction::Forward => "forward",
                    Direction::Reverse => "reverse",
                };
                let new = lost.new_name.as_deref().unwrap_or_default();
                let same = if lost.keeps_name { ", same name" } else { "" };
                format!("{direction} {}, {new}{same}", lost.attribute)
            };
            let found: Vec<String> = found.iter().map(line).collect();
            assert_eq!(found.join("; "), expected, "{transform} {attributes:?}");
        }
    }

    #[test]
    fn a_finding_says_what_to_write_and_this_loses_nothing() {
        let (forward, inverse) = both(RENAMED, OVERWRITES);
        let items = items(&[r#""status":{"BOOL":true}"#]);
        let found = forward.lost_writes(inverse.as_ref(), "orders", &items);
        let text = found[0].to_string();
        assert!(text.starts_with("orders|{\"id\":{\"S\":\"7\"}}: during a revert"), "{text}");
        let (_, program) = text.split_once(": `").unwrap();
        let (forward, inverse) = both(RENAMED, program.trim_end_matches('`'));
        assert_eq!(forward.lost_writes(inverse.as_ref(), "orders", &items), []);
    }

    /// Goal: the check agrees with an actual revert. The test runs all sequences of updates and
    /// changes of one item from the new shape back to the old shape.
    #[test]
    fn the_way_back_keeps_the_last_update_if_nothing_is_found() {
        for (transform, inverse, attributes, _) in
            CASES.iter().filter(|(_, back, ..)| !back.is_empty())
        {
            let (forward, back) = both(transform, inverse);
            let back = back.unwrap();
            let items = items(attributes);
            let found = forward.lost_writes(Some(&back), "orders", &items);
            let shapes = items.iter().filter_map(|old| {
                let new = forward.made("orders", old).filter(|new| new != old)?;
                Some(Shapes { old, new })
            });
            let mut is_lost = false;
            for shapes in shapes {
                for name in shapes.changed() {
                    let values = values(name, &items);
                    is_lost |= sequences(values.len()).any(|sequence| {
                        let (mut item, mut last) = (shapes.new.clone(), None);
                        for step in sequence {
                            match values.get(step) {
                                Some(value) => {
                                    item = with(&item, name, value);
                                    last = Some(value);
                                }
                                None => item = back.made("orders", &item).unwrap(),
                            }
                        }
                        let item = back.made("orders", &item).unwrap();
                        last.is_some_and(|last| item.get(name) != Some(last))
                    });
                }
            }
            let is_found = found.iter().any(|lost| lost.direction == Direction::Reverse);
            assert_eq!(is_found, is_lost, "{transform} {inverse} {attributes:?}");
        }
    }

    /// Returns all sequences of three steps. A step is the index of a value to write, or the number
    /// of values for a revert of the item.
    fn sequences(values: usize) -> impl Iterator<Item = [usize; 3]> {
        let steps = 0..=values;
        let two = steps.clone().flat_map(move |a| (0..=values).map(move |b| (a, b)));
        two.flat_map(move |(a, b)| steps.clone().map(move |c| [a, b, c]))
    }
}
