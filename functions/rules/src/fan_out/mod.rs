//! Fan-out: when declared attributes of an origin change, all its copies follow.
//!
//! A record of an origin contains the values that the copies must have, as of the record's stamp.
//! The latest state of an origin is its **job**, which workers process page by page. A record of a
//! copy may require a check of this copy: the copy is new, it moved to another origin or another
//! place in the index, or another writer changed copied values. The processor reads and writes the
//! tables.
//!
//! **Why fan-out terminates.** Weir writes a copy only if this changes the copy, and then its mark
//! changes too. A record with a changed mark requires no check. At the start, [`check`] refuses
//! rules that form a cycle. Every chain of known rules therefore ends. Rules of other
//! deployments are unknown. Each mark therefore counts its hops: the number of times that its value
//! was copied by a rule of another deployment. A value with more than [`HOPS_MAX`] hops is not
//! copied. Each round of a loop adds at least one hop. A writer outside the rules may also set a
//! copy's origin or overwrite copied attributes, and so propagate a value. A check therefore also
//! counts the hops of the marks in its record.

mod check;
mod copy;
mod copy_rule;
mod declaration;
mod effect;
mod job;
mod tables;

pub use check::{Problem, check};
pub use copy::{CheckResult, CopyReads, OriginState, Update, is_as_wanted, look, update_of};
pub use copy_rule::{CopyRule, OnDelete};
pub use declaration::{DeclarationError, parse_and_check, parse_rules};
pub use effect::{Copy, DeploymentHops, Effect, Folded, LatestOriginState, Origin, Revision};
pub use job::{DamagedJob, Job};
pub use tables::{TableMismatch, TableShape, check_jobs_table, check_tables};

pub use crate::marks::copy::{MARK_PREFIX, Mark, mark_attribute};

use std::collections::BTreeMap;
use std::convert::Infallible;

use model::json::{ItemView, ValueView};
use model::stream_record::{LambdaRecord, RecordView};
use model::{AttributeValue, EventName, Item, json};

use crate::rule::{Found, LookAhead, Refusal, Rule, stream_of};
use crate::stamp::Stamp;

/// The maximum number of hops of a value, inclusive. The value itself counts as one hop, and each
/// rule of another deployment that copied it as one more.
pub const HOPS_MAX: u32 = 5;
/// The attribute of a job that counts its writes. The next write is conditional on it.
pub const JOB_REVISION: &str = "revision";
/// The partition key attribute of the table of jobs.
pub const JOB_KEY: &str = "job";
/// The attribute of a job that is true once every copy was visited.
pub const JOB_DONE: &str = "done";

/// The fan-out rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FanOut {
    /// The rules.
    pub rules: Vec<CopyRule>,
    /// The table of jobs.
    pub jobs_table: String,
}

/// Returns a value as DynamoDB JSON.
#[must_use]
pub fn value_text(value: &AttributeValue) -> String {
    let mut text = String::new();
    json::write_attribute_value(&mut text, value);
    text
}

/// Returns whether a value can be a key.
fn is_key(value: &AttributeValue) -> bool {
    matches!(value, AttributeValue::S(_) | AttributeValue::N(_) | AttributeValue::B(_))
}

impl FanOut {
    /// Returns the rule with this name.
    #[must_use]
    pub fn rule(&self, name: &str) -> Option<&CopyRule> {
        self.rules.iter().find(|rule| rule.name == name)
    }

    fn of_origin(
        rule: &CopyRule,
        record: &LambdaRecord,
        stamp: &Stamp,
    ) -> Result<Option<Effect>, Refusal> {
        let change = &record.record;
        let key = change.keys.get(&rule.origin_key).ok_or_else(|| {
            Refusal(format!(
                "rule `{}`: the records of table `{}` have no key `{}`",
                rule.name, rule.origin, rule.origin_key
            ))
        })?;
        let no_images = || no_images(change.view_type.as_str());
        let old = change.old_image.as_ref().map(|image| rule.values_of(image));
        let deleted = change.event_name == EventName::Remove;
        let values = if deleted {
            old.ok_or_else(no_images)?
        } else {
            let values = rule.values_of(change.new_image.as_ref().ok_or_else(no_images)?);
            if change.event_name == EventName::Modify && old.ok_or_else(no_images)? == values {
                return Ok(None);
            }
            values
        };
        let (old, new) = (change.old_image.as_ref(), change.new_image.as_ref());
        let hops = hops_of(&rule.writers, old, new);
        if hops > HOPS_MAX {
            return Err(Refusal(format!("rule `{}`: {}", rule.name, loop_of(hops))));
        }
        let origin = Origin { rule: rule.name.clone(), key: value_text(key) };
        // Some senders write 0 for an absent time.
        let seconds = change.approximate_creation_seconds.filter(|seconds| *seconds > 0);
        let gone_at = seconds.filter(|_| deleted);
        let mut state = OriginState { stamp: stamp.clone(), hops, values, deleted, gone_at };
        // Only copies that outlive their origin need its last values. In all other cases, values
        // that are too large are omitted.
        if deleted && rule.on_delete != OnDelete::Keep && Job::check(&state, &origin).is_err() {
            state.values = BTreeMap::new();
        }
        Job::check(&state, &origin)?;
        Ok(Some(Effect::Origin { origin, state: LatestOriginState(Some(state)) }))
    }

    fn of_copy(rule: &CopyRule, record: &LambdaRecord) -> Result<Option<Effect>, Refusal> {
        let change = &record.record;
        if change.event_name == EventName::Remove {
            return Ok(None);
        }
        let Some(image) = &change.new_image else {
            return Err(no_images(change.view_type.as_str()));
        };
        let Some(origin) = rule.origin_of(image) else { return Ok(None) };
        if !rule.wants_look(change.old_image.as_ref(), image) {
            return Ok(None);
        }
        if !origin.fits() {
            return Err(origin.unfit());
        }
        let copy = Copy { rule: rule.name.clone(), key: json::item_to_string(&change.keys) };
        // A mark counts only if attributes that this rule reads or writes changed with it. A new
        // copy counts as one hop even if it has marks: functions never create copies, so a client
        // wrote a complete item that still has the marks of another item.
        let written = |old: &&Item| {
            let mut names = rule.attributes.keys().chain([&rule.index_key]);
            names.any(|name| old.get(name) != image.get(name))
        };
        let old = change.old_image.as_ref().filter(written);
        let arrival = old.map_or(1, |old| hops_of(&rule.siblings, Some(old), Some(image)));
        Ok(Some(Effect::CheckCopy { copy, arrival: DeploymentHops(arrival) }))
    }

    /// Returns the effects of all rules for a record, and the first refusal, if any.
    fn say(&self, record: &LambdaRecord) -> (Vec<Effect>, Option<Refusal>) {
        let stream = match stream_of(&record.event_source_arn) {
            Ok(stream) => stream,
            Err(refusal) => return (Vec::new(), Some(refusal)),
        };
        let table = &stream.table.table;
        if *table == self.jobs_table {
            return (Self::of_job(record).into_iter().collect(), None);
        }
        let stamp = Stamp::of_record(&stream.label, &record.record.sequence_number);
        let (mut effects, mut refused) = (Vec::new(), None);
        for rule in &self.rules {
            let of_origin = (rule.origin == *table).then(|| Self::of_origin(rule, record, &stamp));
            let of_copy = (rule.target == *table).then(|| Self::of_copy(rule, record));
            for said in [of_origin, of_copy].into_iter().flatten() {
                match said {
                    Ok(effect) => effects.extend(effect),
                    Err(refusal) => drop(refused.get_or_insert(refusal)),
                }
            }
        }
        (effects, refused)
    }

    /// Returns whether a record is only a write by the rule itself, which changed a copy's mark for
    /// the same origin. These records have no effect and are not decoded, because a job of a
    /// million copies causes a million of them.
    fn is_own_write(&self, record: &RecordView<'_>) -> bool {
        let Ok(stream) = stream_of(&record.event_source_arn) else { return false };
        let table = &stream.table.table;
        let is_other = *table == self.jobs_table || self.rules.iter().any(|r| r.origin == *table);
        let (Some(old), Some(new)) = (&record.old_image, &record.new_image) else { return false };
        let mut rules = self.rules.iter().filter(|rule| rule.target == *table).peekable();
        !is_other && rules.peek().is_some() && rules.all(|rule| is_marked_by(rule, old, new))
    }

    fn of_job(record: &LambdaRecord) -> Option<Effect> {
        let image = record.record.new_image.as_ref()?;
        if image.get(JOB_DONE) == Some(&AttributeValue::Bool(true)) {
            return None;
        }
        let origin = Origin::from_job_key(image.get(JOB_KEY)?.as_str()?)?;
        let revision = Revision(image.get(JOB_REVISION)?.as_number()?.to_u64()?);
        Some(Effect::Continue { origin, revision })
    }
}

/// Returns whether a copy got a later mark of the same origin and kept its place in the index. Such
/// a copy needs no check, see [`CopyRule::wants_look`].
fn is_marked_by(rule: &CopyRule, old: &ItemView<'_>, new: &ItemView<'_>) -> bool {
    let name = mark_attribute(&rule.name);
    let Some(ValueView::S(mark)) = new.get(&name) else { return false };
    let (Some(mark_of), Some(origin)) = (Mark::parse(mark), new.get(&rule.index_key)) else {
        return false;
    };
    let mut origin_text = String::new();
    origin.write(&mut origin_text);
    let before = match old.get(&name) {
        Some(ValueView::S(before)) => Some(before.as_ref()),
        _ => None,
    };
    mark_of.origin == origin_text
        && rule.place_attributes().all(|name| old.get(name) == new.get(name))
        && Mark::is_raised(&origin_text, before, mark)
}

fn no_images(view_type: &str) -> Refusal {
    Refusal(format!("the stream's view type is {view_type}, but fan-out needs NEW_AND_OLD_IMAGES"))
}

/// Returns the error message for a value that passed through too many deployments.
#[must_use]
pub fn loop_of(hops: u32) -> String {
    format!(
        "the value passed through {hops} deployments, so their rules probably form a loop; find the loop in the rules of all deployments and break it"
    )
}

/// Returns the hops of an item's values, according to the marks that changed with the values. The
/// mark of an unknown rule adds one hop, because this rule may have written any of the values. The
/// mark of a known rule ([`CopyRule::writers`] of an origin, [`CopyRule::siblings`] of a copy)
/// counts with its own number of hops. The mark does not count if its rule writes only attributes
/// that are not copied further.
fn hops_of(known: &BTreeMap<String, bool>, old: Option<&Item>, new: Option<&Item>) -> u32 {
    let marks = new.into_iter().flatten().filter(|(name, _)| name.starts_with(MARK_PREFIX));
    let hops = marks
        .filter(|(name, value)| old.and_then(|old| old.get(*name)) != Some(*value))
        .filter_map(|(name, value)| {
            let hops = Mark::parse(value.as_str()?)?.hops;
            match known.get(name.strip_prefix(MARK_PREFIX)?) {
                None => Some(hops.saturating_add(1)),
                Some(feeds) => feeds.then_some(hops),
            }
        });
    // A mark for deletion has no hops.
    hops.max().unwrap_or(0).max(1)
}

impl Rule for FanOut {
    type Input = Infallible;
    type Effect = Effect;

    fn look_ahead(&self) -> LookAhead {
        LookAhead::Nothing
    }

    fn decide(
        &self,
        record: &LambdaRecord,
        _found: &Found<Infallible>,
    ) -> Result<Vec<Effect>, Refusal> {
        match self.say(record) {
            (effects, None) => Ok(effects),
            (_, Some(refusal)) => Err(refusal),
        }
    }

    fn decide_view(
        &self,
        record: RecordView<'_>,
        found: &Found<Infallible>,
    ) -> Result<Vec<Effect>, Refusal> {
        if self.is_own_write(&record) {
            return Ok(Vec::new());
        }
        self.decide(&record.into_record(), found)
    }

    fn decide_each(
        &self,
        record: RecordView<'_>,
        _: &Found<Infallible>,
    ) -> (Vec<Effect>, Option<Refusal>) {
        if self.is_own_write(&record) {
            return (Vec::new(), None);
        }
        self.say(&record.into_record())
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;
    use crate::effect::Join;
    use crate::rule::testing::check_decisions;

    fn describe(effect: &Effect) -> String {
        match effect {
            Effect::Origin { origin, state } => {
                let mut text = format!("origin {}", origin.job_key());
                if let Some(state) = &state.0 {
                    let _ = write!(text, " as of {} hops {}", state.stamp, state.hops);
                    for (name, value) in &state.values {
                        let value = value.as_ref().map(value_text);
                        let _ = write!(text, "\n{name} {}", value.as_deref().unwrap_or("-"));
                    }
                    if state.deleted {
                        text.push_str("\ndeleted");
                    }
                }
                text
            }
            Effect::Continue { origin, revision } => {
                format!("continue {} at {}", origin.job_key(), revision.0)
            }
            Effect::CheckCopy { copy, arrival } => {
                format!("look {} {} hops {}", copy.rule, copy.key, arrival.0)
            }
        }
    }

    #[test]
    fn decisions() {
        let mut rules = parse_rules(
            "- name: products\n  from: products\n  to: order-lines\n  index: by-product\n  key: {productID: productID}\n  attributes: {productName: productName}\n  on-delete: clear\n",
        )
        .unwrap();
        rules[0].index_sort = vec!["at".to_owned()];
        let rule = FanOut { rules, jobs_table: "jobs".to_owned() };
        let cases = include_str!("../../testdata/fan-out.txt");
        check_decisions(&rule, &Found::default(), describe, cases);
    }

    /// Returns the decisions about a record of an origin with this key: the number of effects with
    /// values, the number of effects without values, and the reason of the refusal.
    fn said(
        on_delete: &str,
        event: &str,
        key: &str,
        name: &AttributeValue,
    ) -> (usize, usize, String) {
        let rule = |name: &str, from: &str| {
            format!(
                "- {{name: {name}, from: products, to: {name}, index: i, key: {{id: id}}, attributes: {{n: {from}}}, on-delete: {on_delete}}}\n"
            )
        };
        let rules = parse_rules(&(rule("names", "name") + &rule("units", "unit"))).unwrap();
        let rule = FanOut { rules, jobs_table: "jobs".to_owned() };
        let keys = Item::new().with("id", key);
        let image = keys.clone().with("name", name.clone());
        let image_name = if event == "REMOVE" { "OldImage" } else { "NewImage" };
        let record = format!(
            r#"{{"eventID":"e","eventName":"{event}","dynamodb":{{"Keys":{},"{image_name}":{},"SequenceNumber":"8","SizeBytes":9,"StreamViewType":"NEW_AND_OLD_IMAGES"}},"eventSourceARN":"arn:aws:dynamodb:r:a:table/products/stream/2026"}}"#,
            json::item_to_string(&keys),
            json::item_to_string(&image),
        );
        let record = json::parse(record.as_bytes()).unwrap();
        let record = model::stream_record::decode_lambda_record(&record).unwrap();
        let (effects, refused) = rule.decide_each(RecordView::of(&record), &Found::default());
        assert_eq!(rule.decide(&record, &Found::default()).is_err(), refused.is_some());
        let holds = |effect: &&Effect| {
            let Effect::Origin { state: LatestOriginState(Some(state)), .. } = effect else {
                return false;
            };
            !state.values.is_empty()
        };
        let (holding, all) = (effects.iter().filter(holds).count(), effects.len());
        (holding, all - holding, refused.map_or_else(String::new, |refusal| refusal.0))
    }

    #[test]
    fn a_value_too_large_for_a_job_is_refused_and_other_rules_continue() {
        let text = |bytes: usize| AttributeValue::from("x".repeat(bytes));
        let nested = |levels: usize| {
            (1..levels).fold(AttributeValue::Null, |value, _| AttributeValue::L(vec![value]))
        };
        let (large, quotes) = ("the copied attributes of the origin", "\"".repeat(1015));
        for (on_delete, event, key, name, expected) in [
            ("keep", "INSERT", "1", text(401_000), (2, 0, "")),
            ("keep", "INSERT", "1", text(409_500), (1, 0, large)),
            ("keep", "REMOVE", "1", text(409_500), (1, 0, large)),
            // Copies that do not outlive their origin are still deleted or cleared.
            ("cascade", "REMOVE", "1", text(409_500), (1, 1, "")),
            ("clear", "REMOVE", "1", nested(32), (1, 1, "")),
            ("clear", "INSERT", "1", text(409_500), (1, 0, large)),
            ("keep", "INSERT", "1", nested(31), (2, 0, "")),
            ("keep", "INSERT", "1", nested(32), (1, 0, "is nested 32 levels deep")),
            // Each quotation mark takes two bytes in JSON.
            ("keep", "INSERT", quotes.get(1..).unwrap(), text(1), (2, 0, "")),
            (
                "keep",
                "INSERT",
                &format!("{quotes}12345"),
                text(1),
                (0, 0, "takes 2049 bytes as the key"),
            ),
            (
                "cascade",
                "REMOVE",
                &format!("{quotes}12345"),
                text(1),
                (0, 0, "takes 2049 bytes as the key"),
            ),
        ] {
            let (holding, empty, refused) = said(on_delete, event, key, &name);
            assert_eq!(
                (holding, empty, refused.is_empty()),
                (expected.0, expected.1, expected.2.is_empty()),
                "{refused}"
            );
            assert!(refused.contains(expected.2), "{refused}");
        }
    }

    #[test]
    fn a_check_is_refused_if_the_job_cannot_exist() {
        let rules = "- {name: r, from: aaa, to: bbb, index: i, key: {aid: id}, attributes: {n: name}, on-delete: keep}";
        let rule = FanOut { rules: parse_rules(rules).unwrap(), jobs_table: "jobs".to_owned() };
        for (bytes, expected) in [(1, true), (2038, true), (2039, false)] {
            let copy = Item::new().with("k", "1").with("aid", "a".repeat(bytes));
            let record = format!(
                r#"{{"eventID":"e","eventName":"INSERT","dynamodb":{{"Keys":{{"k":{{"S":"1"}}}},"NewImage":{},"SequenceNumber":"8","SizeBytes":9,"StreamViewType":"NEW_AND_OLD_IMAGES"}},"eventSourceARN":"arn:aws:dynamodb:r:a:table/bbb/stream/2026"}}"#,
                json::item_to_string(&copy),
            );
            let record = json::parse(record.as_bytes()).unwrap();
            let record = model::stream_record::decode_lambda_record(&record).unwrap();
            let decided = rule.decide(&record, &Found::default());
            assert_eq!(decided.is_ok(), expected, "{bytes}: {decided:?}");
        }
    }

    /// Returns the hops that the rule with this name computes for an item whose change includes
    /// these marks. Returns `None` if the rule refuses the item.
    fn hops_said(yaml: &str, rule: &str, marks: &[(&str, u32)]) -> Option<u32> {
        let rules = parse_and_check(yaml).unwrap();
        let rule = rules.iter().find(|found| found.name == rule).unwrap();
        let mut item = Item::new().with("id", "1");
        for (writer, hops) in marks {
            let origin = r#"{"S":"0"}"#.to_owned();
            let mark = Mark { origin, stamp: Stamp::lowest(), hops: *hops };
            item = item.with(&mark_attribute(writer), mark.text());
        }
        let record = format!(
            r#"{{"eventID":"e","eventName":"INSERT","dynamodb":{{"Keys":{{"id":{{"S":"1"}}}},"NewImage":{},"SequenceNumber":"8","SizeBytes":9,"StreamViewType":"NEW_AND_OLD_IMAGES"}},"eventSourceARN":"arn:aws:dynamodb:r:a:table/{}/stream/2026"}}"#,
            json::item_to_string(&item),
            rule.origin,
        );
        let record = json::parse(record.as_bytes()).unwrap();
        let record = model::stream_record::decode_lambda_record(&record).unwrap();
        match FanOut::of_origin(rule, &record, &Stamp::lowest()) {
            Ok(Some(Effect::Origin { state: LatestOriginState(Some(state)), .. })) => {
                Some(state.hops)
            }
            Ok(other) => panic!("{other:?}"),
            Err(refusal) => {
                assert!(refusal.0.contains("deployments"), "{refusal:?}");
                None
            }
        }
    }

    /// Goal: a chain of rules without a loop adds no hops, however long it is. A value of another
    /// deployment keeps its hops through any number of known rules.
    #[test]
    fn only_values_of_other_deployments_count_as_hops() {
        let rule = |name: &str, from: &str, to: &str, attributes: &str| {
            format!(
                "- {{name: {name}, from: {from}, to: {to}, index: i, key: {{boss: id}}, attributes: {{{attributes}}}, on-delete: keep}}\n"
            )
        };
        // A rule for the manager of a manager, in one table.
        let chain = rule("bosses", "staff", "staff", "bossName: name, bossOfBoss: bossName");
        let names = rule("names", "staff", "staff", "bossName: name");
        let straight = (1..8)
            .map(|n| rule(&format!("r{n}"), &format!("tb{n}"), &format!("tb{}", n + 1), "n: n"));
        let straight: String = straight.collect();
        for (yaml, name, marks, expected) in [
            (&chain, "bosses", vec![], Some(1)),
            (&chain, "bosses", vec![("bosses", 1)], Some(1)),
            (&names, "names", vec![("names", 9)], Some(1)),
            (&straight, "r7", vec![("r6", 1)], Some(1)),
            (&straight, "r7", vec![("r6", 5)], Some(5)),
            // A rule with this name is known, but writes to another table. Another deployment has a
            // rule of the same name.
            (&straight, "r7", vec![("r5", 1)], Some(2)),
            (&straight, "r7", vec![("r6", 3), ("other", 3)], Some(4)),
            (&straight, "r7", vec![("other", 4)], Some(5)),
            (&straight, "r7", vec![("other", 5)], None),
            (&straight, "r7", vec![("r6", 6)], None),
            (&straight, "r7", vec![("other", u32::MAX)], None),
            (&straight, "r7", vec![("r6", 0)], Some(1)),
        ] {
            assert_eq!(hops_said(yaml, name, &marks), expected, "{name}, {marks:?}");
        }
    }

    #[test]
    fn the_latest_statement_wins() {
        let state = |sequence: u64| {
            let stamp = Stamp::of_record("l", &sequence.to_string().parse().unwrap());
            let values = BTreeMap::new();
            LatestOriginState(Some(OriginState {
                stamp,
                hops: 1,
                values,
                deleted: false,
                gone_at: None,
            }))
        };
        let mut latest = LatestOriginState::default();
        for sequence in [2, 9, 10, 3] {
            latest.join(state(sequence));
        }
        assert_eq!(latest, state(10));
    }
}
