//! Looks at many copies at once: what they must hold is read in batches, what differs is written.
//!
//! A batch of new copies shares its origins, so jobs, origins and copies are read 100 in a request
//! instead of each for each copy. The order of the reads is what makes a look right (job, then
//! origin, then copy), and it is the same for all copies of a round. What a round could not settle,
//! because a copy was written meanwhile, goes into the next one.

use std::collections::{BTreeMap, BTreeSet};

use futures::{StreamExt, stream};
use model::{AttributeValue, Item, json};
use rules::fan_out::{Copy, CopyRule, Job, Look, Origin, Update, look, mark_attribute, value_text};
use rules::{Joined, fan_out::Revision};

use super::{Copies, CopyGuard, CopyTables, WRITES_AT_ONCE, unknown_rule};
use crate::back_off::Deadline;
use crate::failure::Failure;
use crate::frame::TargetOutcome;
use crate::tables::WriteOutcome;

/// Copies that are looked at in one round: what is held of them, 400 KB each at the most, stays far
/// below the memory of a function in all but the worst case, and ten requests read them.
const ROUND_COPIES: usize = 500;

/// What a look came to, by the copy's key in DynamoDB JSON: 1 if it was written.
pub(super) type Looked = BTreeMap<String, Result<usize, Failure>>;

/// What a round read.
struct Seen {
    /// By the origin's key in DynamoDB JSON.
    jobs: BTreeMap<String, Job>,
    origins: BTreeMap<String, Item>,
    /// By the copy's key in DynamoDB JSON.
    before: BTreeMap<String, Item>,
    after: BTreeMap<String, Item>,
}

/// What there is to do about one copy.
enum Todo {
    Nothing,
    Again,
    Write(Update, CopyGuard),
}

/// The origin's key of a copy, if it has one.
fn origin_of(rule: &CopyRule, copy: &Item) -> Option<AttributeValue> {
    let value = copy.get(&rule.index_key)?;
    let is_key =
        matches!(value, AttributeValue::S(_) | AttributeValue::N(_) | AttributeValue::B(_));
    is_key.then(|| value.clone())
}

impl Seen {
    fn todo(&self, rule: &CopyRule, key: &str) -> Todo {
        let Some(origin) = self.before.get(key).and_then(|copy| origin_of(rule, copy)) else {
            return Todo::Nothing;
        };
        let Some(copy) = self.after.get(key) else { return Todo::Nothing };
        if copy.get(&rule.index_key) != Some(&origin) {
            return Todo::Again;
        }
        let origin = value_text(&origin);
        let job = self.jobs.get(&origin).map(|job| &job.state);
        match look(rule, job, self.origins.get(&origin), copy) {
            Look::InOrder => Todo::Nothing,
            Look::Again => Todo::Again,
            Look::Write(update) => {
                let mark = copy.get(&mark_attribute(&rule.name)).cloned();
                Todo::Write(update, CopyGuard::Seen(mark))
            }
        }
    }
}

impl<T: CopyTables> Copies<T> {
    /// Looks at the copies that a batch named; the outcomes are those of its records.
    pub(super) async fn look_at_named(
        &self,
        looks: BTreeMap<Copy, Joined<Revision>>,
        deadline: Deadline,
        outcomes: &mut Vec<TargetOutcome>,
    ) {
        let mut rules: BTreeMap<String, BTreeMap<String, Vec<usize>>> = BTreeMap::new();
        for (copy, joined) in looks {
            rules.entry(copy.rule).or_default().insert(copy.key, joined.records);
        }
        for (name, mut records) in rules {
            let keys: BTreeSet<String> = records.keys().cloned().collect();
            let looked = match self.rule.rule(&name) {
                Some(rule) => self.look_at_all(rule, keys, deadline).await,
                None => keys.into_iter().map(|key| (key, Err(unknown_rule(&name)))).collect(),
            };
            outcomes.extend(looked.into_iter().map(|(target, result)| TargetOutcome {
                records: records.remove(&target).unwrap_or_default(),
                target,
                result,
            }));
        }
    }

    /// Looks at copies, given by their keys in DynamoDB JSON, and writes what they must hold.
    pub(super) async fn look_at_all(
        &self,
        rule: &CopyRule,
        keys: BTreeSet<String>,
        deadline: Deadline,
    ) -> Looked {
        let mut looked = Looked::new();
        let keys: Vec<String> = keys.into_iter().collect();
        for some in keys.chunks(ROUND_COPIES) {
            self.look_at_some(rule, some, deadline, &mut looked).await;
        }
        looked
    }

    async fn look_at_some(
        &self,
        rule: &CopyRule,
        keys: &[String],
        deadline: Deadline,
        looked: &mut Looked,
    ) {
        let mut pending: BTreeMap<String, Failure> = BTreeMap::new();
        let always = Failure::Retry("others write this copy all the time".to_owned());
        pending.extend(keys.iter().map(|key| (key.clone(), always.clone())));
        let mut attempts = self.retry.attempts();
        while !pending.is_empty() && attempts.next().await {
            let seen = match deadline.limit(self.see(rule, pending.keys())).await {
                Ok(seen) => seen,
                Err(failure) => {
                    let is_fatal = matches!(failure, Failure::Fatal(_));
                    pending.values_mut().for_each(|last| *last = failure.clone());
                    if is_fatal || deadline.is_over() {
                        break;
                    }
                    continue;
                }
            };
            let todo: Vec<_> =
                pending.into_keys().map(|key| self.settle(rule, key, &seen, deadline)).collect();
            pending = BTreeMap::new();
            let mut todo = stream::iter(todo).buffer_unordered(WRITES_AT_ONCE);
            while let Some((key, settled)) = todo.next().await {
                match settled {
                    Ok(Some(written)) => drop(looked.insert(key, Ok(written))),
                    Ok(None) => drop(pending.insert(key, always.clone())),
                    Err(Failure::Retry(reason)) => {
                        pending.insert(key, Failure::Retry(reason));
                    }
                    Err(fatal @ Failure::Fatal(_)) => drop(looked.insert(key, Err(fatal))),
                }
            }
        }
        looked.extend(pending.into_iter().map(|(key, failure)| (key, Err(failure))));
    }

    /// Reads copies, jobs, origins and copies again, in this order.
    async fn see(
        &self,
        rule: &CopyRule,
        keys: impl Iterator<Item = &String>,
    ) -> Result<Seen, Failure> {
        let mut wanted = BTreeMap::new();
        for text in keys {
            wanted.insert(text.clone(), super::parsed(json::item_from_str(text), text)?);
        }
        // The origins are known from the copies, and the copies must be read after them: twice.
        let before = self.tables.copies(rule, &wanted).await?;
        let values: BTreeMap<String, AttributeValue> = before
            .values()
            .filter_map(|copy| origin_of(rule, copy))
            .map(|value| (value_text(&value), value))
            .collect();
        let origins =
            values.keys().map(|key| Origin { rule: rule.name.clone(), key: key.clone() }).collect();
        let mut jobs = BTreeMap::new();
        for (origin, item) in self.tables.jobs(&origins).await? {
            jobs.insert(origin.key, super::read_job(&item)?);
        }
        let origins = self.tables.origins(rule, &values).await?;
        wanted.retain(|key, _| before.get(key).is_some_and(|copy| origin_of(rule, copy).is_some()));
        let after = self.tables.copies(rule, &wanted).await?;
        Ok(Seen { jobs, origins, before, after })
    }

    /// Writes what a copy must hold; `None` asks for another look.
    async fn settle(
        &self,
        rule: &CopyRule,
        text: String,
        seen: &Seen,
        deadline: Deadline,
    ) -> (String, Result<Option<usize>, Failure>) {
        let outcome = match seen.todo(rule, &text) {
            Todo::Nothing => Ok(Some(0)),
            Todo::Again => Ok(None),
            Todo::Write(update, guard) => match super::parsed(json::item_from_str(&text), &text) {
                Err(failure) => Err(failure),
                Ok(key) => deadline
                    .limit(self.tables.write(rule, &key, &update, &guard))
                    .await
                    .map(|outcome| (outcome == WriteOutcome::Written).then_some(1)),
            },
        };
        (text, outcome)
    }
}
