//! The convergence property for fan-out. Origins and copies change, and every record is delivered at
//! least once, in any order and any batches. The final copies are always equal.
//!
//! All records are delivered after the last change, so that runs differ only in the order of
//! deliveries. The tests of the processor cover changes between deliveries, pages, and failing
//! requests.

use std::collections::BTreeMap;

use model::stream_record::LambdaRecord;
use model::{AttributeValue, EventName, Item, Number, StreamRecord, StreamViewType, json};
use proptest::prelude::*;
use rules::fan_out::{
    CheckResult, CopyReads, CopyRule, FanOut, Mark, Origin, OriginState, Update, look,
    mark_attribute, parse_and_check, update_of, value_text,
};
use rules::{Found, Join, Rule, fold};

use super::{cases, deliver, deliveries};

const RULE: &str = "products";

/// A user's action.
#[derive(Clone, Debug)]
enum Change {
    Rename { origin: u8, name: u8 },
    DeleteOrigin { origin: u8 },
    PutCopy { copy: u8, origin: u8 },
    WriteOver { copy: u8, name: u8 },
    DeleteCopy { copy: u8 },
}

fn changes() -> impl Strategy<Value = Vec<Change>> {
    let change = prop_oneof![
        4 => (0..3_u8, any::<u8>()).prop_map(|(origin, name)| Change::Rename { origin, name }),
        1 => (0..3_u8).prop_map(|origin| Change::DeleteOrigin { origin }),
        3 => (0..6_u8, 0..3_u8).prop_map(|(copy, origin)| Change::PutCopy { copy, origin }),
        1 => (0..6_u8, any::<u8>()).prop_map(|(copy, name)| Change::WriteOver { copy, name }),
        1 => (0..6_u8).prop_map(|copy| Change::DeleteCopy { copy }),
    ];
    prop::collection::vec(change, 1..40)
}

fn rule(on_delete: &str) -> FanOut {
    let rules = parse_and_check(&format!(
        "- {{name: {RULE}, from: products, to: lines, index: i, key: {{productID: productID}}, attributes: {{productName: productName}}, on-delete: {on_delete}}}"
    ));
    FanOut { rules: rules.unwrap(), jobs_table: "jobs".to_owned() }
}

/// The final tables of the users, and the streams of their changes.
#[derive(Clone, Debug, Default)]
struct History {
    origins: BTreeMap<String, Item>,
    copies: BTreeMap<String, Item>,
    records: Vec<LambdaRecord>,
}

impl History {
    fn of(changes: &[Change]) -> Self {
        let mut history = Self::default();
        for change in changes {
            match change {
                Change::Rename { origin, name } => {
                    let item = product(*origin).with("productName", Number::from(u64::from(*name)));
                    history.set("products", product(*origin), Some(item));
                }
                Change::DeleteOrigin { origin } => {
                    history.set("products", product(*origin), None);
                }
                Change::PutCopy { copy, origin } => {
                    let item = line(*copy).with("productID", Number::from(u64::from(*origin)));
                    history.set("lines", line(*copy), Some(item));
                }
                Change::WriteOver { copy, name } => {
                    let there = history.copies.get(&json::item_to_string(&line(*copy))).cloned();
                    if let Some(item) = there {
                        let item = item.with("productName", Number::from(u64::from(*name)));
                        history.set("lines", line(*copy), Some(item));
                    }
                }
                Change::DeleteCopy { copy } => history.set("lines", line(*copy), None),
            }
        }
        history
    }

    fn set(&mut self, table: &str, keys: Item, new: Option<Item>) {
        let key = match keys.get("productID") {
            Some(value) => value_text(value),
            None => json::item_to_string(&keys),
        };
        let items = if table == "products" { &mut self.origins } else { &mut self.copies };
        let old = match &new {
            Some(item) => items.insert(key, item.clone()),
            None => items.remove(&key),
        };
        if old == new {
            return;
        }
        let sequence = self.records.len() + 7;
        self.records.push(LambdaRecord {
            record: StreamRecord {
                event_id: format!("{sequence:032}"),
                event_name: match (&old, &new) {
                    (None, _) => EventName::Insert,
                    (_, None) => EventName::Remove,
                    _ => EventName::Modify,
                },
                user_identity: None,
                approximate_creation_seconds: Some(1_795_228_140),
                old_image: old,
                new_image: new,
                keys,
                sequence_number: sequence.to_string().parse().unwrap(),
                size_bytes: 1,
                view_type: StreamViewType::NewAndOldImages,
            },
            event_source_arn: format!(
                "arn:aws:dynamodb:us-east-1:000000000000:table/{table}/stream/{}",
                super::LABELS[0]
            ),
        });
    }
}

fn product(origin: u8) -> Item {
    Item::new().with("productID", Number::from(u64::from(origin)))
}

fn line(copy: u8) -> Item {
    Item::new().with("line", format!("line-{copy}"))
}

/// The tables that the rule reads and writes.
#[derive(Clone, Debug, PartialEq)]
struct Tables {
    origins: BTreeMap<String, Item>,
    copies: BTreeMap<String, Item>,
    jobs: BTreeMap<Origin, OriginState>,
}

impl Tables {
    fn apply(&mut self, fan_out: &FanOut, batch: &[&LambdaRecord]) {
        let effects = batch.iter().enumerate().flat_map(|(position, record)| {
            let effects = fan_out.decide(record, &Found::default()).unwrap();
            effects.into_iter().map(move |effect| (position, effect))
        });
        let folded = fold(effects);
        let rule = &fan_out.rules[0];
        for (origin, joined) in folded.origins {
            let mut known = rules::fan_out::LatestOriginState(self.jobs.get(&origin).cloned());
            known.join(joined.value);
            let state = known.0.unwrap();
            let update = update_of(rule, &origin, &state, 1);
            self.jobs.insert(origin.clone(), state);
            let mine =
                |copy: &Item| copy.get("productID").map(value_text) == Some(origin.key.clone());
            let keys =
                self.copies.iter().filter(|(_, copy)| mine(copy)).map(|(key, _)| key.clone());
            for key in keys.collect::<Vec<_>>() {
                let marking = update.marking();
                self.write_older(rule, &key, marking.as_ref().unwrap_or(&update));
                // A copy that is marked for deletion is deleted only if its origin does not exist.
                if marking.is_some() && !self.origins.contains_key(&origin.key) {
                    self.delete_marked(rule, &key, &update);
                }
            }
        }
        for (copy, joined) in folded.copy_checks {
            while self.look(rule, &copy.key, joined.value.0) {}
        }
    }

    /// Checks a copy. Returns whether the copy must be checked again.
    fn look(&mut self, rule: &CopyRule, key: &str, arrival: u32) -> bool {
        let Some(copy) = self.copies.get(key) else { return false };
        let Some(origin) = copy.get("productID").map(value_text) else { return false };
        let job = Origin { rule: rule.name.clone(), key: origin.clone() };
        let (job, origin) = (self.jobs.get(&job), self.origins.get(&origin));
        let arrival = Some(arrival);
        let looked =
            look(rule, &CopyReads { before: copy, job, origin, copy, nonce: 1 << 63, arrival });
        let is_marking = matches!(looked, CheckResult::Mark(_));
        if let CheckResult::Mark(update) | CheckResult::Write(update) = looked {
            self.write(rule, key, &update);
        }
        is_marking
    }

    fn delete_marked(&mut self, rule: &CopyRule, key: &str, update: &Update) {
        let (Update::Set { mark, .. } | Update::Delete { mark }) = update;
        let found = self.copies[key].get(&mark_attribute(&rule.name));
        if found.and_then(AttributeValue::as_str) == Some(mark.text().as_str()) {
            self.write(rule, key, update);
        }
    }

    fn write_older(&mut self, rule: &CopyRule, key: &str, update: &Update) {
        let (Update::Set { mark, .. } | Update::Delete { mark }) = update;
        let found = self.copies[key].get(&mark_attribute(&rule.name));
        let found = found.and_then(AttributeValue::as_str);
        let is_older = found.is_none_or(|found| {
            !found.starts_with(&Mark::prefix(&mark.origin)) || found < mark.text().as_str()
        });
        if is_older {
            self.write(rule, key, update);
        }
    }

    fn write(&mut self, rule: &CopyRule, key: &str, update: &Update) {
        let Update::Set { values, mark } = update else {
            self.copies.remove(key);
            return;
        };
        let copy = self.copies.get_mut(key).unwrap();
        for (name, value) in values {
            match value {
                Some(value) => copy.insert(name.clone(), value.clone()),
                None => copy.remove(name),
            };
        }
        copy.insert(mark_attribute(&rule.name), AttributeValue::from(mark.text().as_str()));
    }

    /// Returns the data that must be equal in all runs. Excludes the marks of copies, because a
    /// check and a job write the same values with different marks.
    fn contents(&self) -> (BTreeMap<String, Item>, BTreeMap<Origin, OriginState>) {
        let mut copies = self.copies.clone();
        copies.values_mut().for_each(|copy| drop(copy.remove(&mark_attribute(RULE))));
        (copies, self.jobs.clone())
    }
}

/// Compares the copies with the values that are computed without the rule.
fn check(tables: &Tables, history: &History, on_delete: &str) {
    for (key, made) in &history.copies {
        let origin = value_text(&made["productID"]);
        let is_known = |record: &&LambdaRecord| {
            record.event_source_arn.contains("/products/")
                && record.record.keys.get("productID").map(value_text).as_ref() == Some(&origin)
        };
        let last = history.records.iter().rfind(is_known).map(|record| &record.record);
        let name = tables.copies.get(key).map(|copy| copy.get("productName"));
        let Some(last) = last else {
            // The origin never existed.
            assert_eq!(name, Some(made.get("productName")), "{key}");
            continue;
        };
        let expected = match (&last.new_image, on_delete) {
            (Some(image), _) => Some(image.get("productName")),
            (None, "cascade") => None,
            (None, "clear") => Some(None),
            (None, _) => Some(last.old_image.as_ref().unwrap().get("productName")),
        };
        assert_eq!(name, expected, "{key} with {on_delete}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases()))]

    #[test]
    fn copies_converge(
        changes in changes(),
        on_delete in prop::sample::select(vec!["keep", "clear", "cascade"]),
        first in deliveries(),
        second in deliveries(),
    ) {
        let fan_out = rule(on_delete);
        let history = History::of(&changes);
        let begin = Tables {
            origins: history.origins.clone(),
            copies: history.copies.clone(),
            jobs: BTreeMap::new(),
        };
        let (mut in_order, mut delivered) = (begin.clone(), begin);
        for record in &history.records {
            in_order.apply(&fan_out, &[record]);
        }
        for batch in deliver(&history.records, &first) {
            delivered.apply(&fan_out, &batch);
        }
        prop_assert_eq!(delivered.contents(), in_order.contents());
        check(&delivered, &history, on_delete);

        // Another delivery changes nothing, not even a mark.
        let before = delivered.clone();
        for batch in deliver(&history.records, &second) {
            delivered.apply(&fan_out, &batch);
        }
        prop_assert_eq!(&delivered, &before);
    }
}
