//! The self-check: looks at some copies of each rule, others each time, and repairs what differs.
//!
//! Run on a schedule; on request it goes through all copies of a rule instead, page by page, until
//! its time is over, and says where to go on. It finds what no record said: a copy that an index did
//! not know yet when its job visited the others, or records that were given up. A copy whose job is still at work differs
//! too; writing it is right in either case.

use model::{Item, json};
use rules::fan_out::CopyRule;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tracing::warn;

use super::looks::{Arrivals, Looked, ROUND_COPIES};
use super::{Copies, CopyTables};
use crate::back_off::Deadline;
use crate::failure::Failure;

/// Copies in one sample at most. Parts are not equally large, and a part ends only behind the last
/// item of a partition key.
const SAMPLE_COPIES_MAX: usize = 400;
/// Pages in one sample at most, each of 1 MB: as much more than usual as copies are.
const SAMPLE_PAGES_MAX: usize = 4;

/// What a run found and did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SelfCheckReport {
    /// Rules.
    pub rules: usize,
    /// Copies that were looked at.
    pub copies: usize,
    /// Copies that were not what their origin says, and are now.
    pub repaired: usize,
    /// Copies that could not be looked at: left to a later run.
    pub postponed: usize,
    /// Copies that cannot be written: DynamoDB refuses them as they would become, the key of their
    /// origin is too long as the key of a job, or their values go round through several deployments.
    pub refused: usize,
}

/// The event `{"repair": {"rule": …, "after": …}}`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RepairRequest {
    /// The rule's name.
    pub rule: String,
    /// The key behind which to go on, in DynamoDB JSON; without it, the first one.
    pub after: Option<Box<RawValue>>,
}

/// The answer to a [`RepairRequest`].
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Repaired {
    /// What was found and done, of the copies up to `after`; postponed are those behind it that could
    /// not be looked at in this run.
    pub checked: SelfCheckReport,
    /// Whether all copies were looked at.
    pub is_whole: bool,
    /// The key behind which to go on otherwise; without one, from the beginning on.
    pub after: Option<Box<RawValue>>,
}

/// How far a repair got with a page.
enum PageEnd {
    Whole,
    /// Behind this copy of it; before all of them without one.
    Behind(Option<Item>),
}

#[derive(Deserialize)]
struct Envelope {
    repair: Option<RepairRequest>,
}

impl RepairRequest {
    /// Reads an event; `None` when it asks for no repair.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn read(event: &str) -> Result<Option<Self>, Failure> {
        let read: Result<Envelope, _> = serde_json::from_str(event);
        read.map(|envelope| envelope.repair).map_err(|error| {
            Failure::Fatal(format!(
                "the event cannot be read: {error}; write {{\"repair\":{{\"rule\":\"NAME\"}}}}"
            ))
        })
    }
}

impl<T: CopyTables> Copies<T> {
    /// Looks at all copies of a rule, a page at a time, for half of the time that is left, up to the
    /// first copy that cannot be looked at.
    ///
    /// # Errors
    /// When there is no such rule, the key is no key, or the table cannot be read at all.
    pub async fn repair(
        &self,
        request: &RepairRequest,
        deadline: Deadline,
    ) -> Result<Repaired, Failure> {
        let rule = self.rule.rule(&request.rule).ok_or_else(|| {
            let names: Vec<&str> = self.rule.rules.iter().map(|rule| rule.name.as_str()).collect();
            let (name, names) = (&request.rule, names.join(", "));
            Failure::Fatal(format!("there is no rule `{name}`; there are: {names}"))
        })?;
        let after = request.after.as_ref().map(|raw| json::item_from_str(raw.get()));
        let mut after =
            after.transpose().map_err(|error| Failure::Fatal(format!("`after`: {error}")))?;
        let mut checked = SelfCheckReport { rules: 1, ..Default::default() };
        let (half, mut is_whole) = (deadline.half_way(), false);
        // Bounded by the time: each page takes a request's.
        loop {
            let page = match deadline.limit(self.tables.all(rule, after.as_ref())).await {
                Ok(page) => page,
                // What was done before is told, and whoever asked goes on from there.
                Err(Failure::Retry(reason)) if checked.copies > 0 => {
                    warn!(reason, rule = rule.name, "no page of copies; the repair goes on later");
                    break;
                }
                Err(failure) => return Err(failure),
            };
            match self.repair_page(rule, &page.keys, (half, deadline), &mut checked).await? {
                PageEnd::Whole => after = page.next,
                PageEnd::Behind(settled) => {
                    after = settled.or(after);
                    break;
                }
            }
            is_whole = after.is_none();
            if is_whole || half.is_over() {
                break;
            }
        }
        let after = after.map(|key| RawValue::from_string(json::item_to_string(&key)));
        let after = after.transpose().map_err(|error| Failure::Retry(error.to_string()))?;
        Ok(Repaired { checked, is_whole, after })
    }

    /// Looks at the copies of a page in their order, up to the first that could not be looked at or
    /// until the time is over.
    async fn repair_page(
        &self,
        rule: &CopyRule,
        keys: &[Item],
        (half, deadline): (Deadline, Deadline),
        checked: &mut SelfCheckReport,
    ) -> Result<PageEnd, Failure> {
        let mut settled = None;
        for some in keys.chunks(ROUND_COPIES) {
            let texts: Vec<String> = some.iter().map(json::item_to_string).collect();
            let mut looked = self.look_at_all(rule, &texts, &Arrivals::new(), deadline).await;
            let mut postponed = 0;
            for (key, text) in some.iter().zip(&texts) {
                match looked.remove(text) {
                    Some(Err(fatal @ Failure::Fatal(_))) => return Err(fatal),
                    Some(Err(Failure::Retry(_))) | None => postponed += 1,
                    // What stands behind a copy that was not looked at is counted when it is looked
                    // at again; only what is written is written once.
                    Some(Ok(Looked::Written)) => checked.repaired += 1,
                    Some(Ok(Looked::Refused)) if postponed == 0 => checked.refused += 1,
                    Some(Ok(Looked::Refused | Looked::InOrder)) => {}
                }
                if postponed == 0 {
                    checked.copies += 1;
                    settled = Some(key.clone());
                }
            }
            if postponed > 0 {
                checked.postponed = postponed;
                return Ok(PageEnd::Behind(settled));
            }
            if half.is_over() {
                return Ok(PageEnd::Behind(settled));
            }
        }
        Ok(PageEnd::Whole)
    }

    async fn look_and_report(
        &self,
        rule: &CopyRule,
        keys: &[Item],
        deadline: Deadline,
        report: &mut SelfCheckReport,
    ) -> Result<(), Failure> {
        report.copies += keys.len();
        let keys: Vec<String> = keys.iter().map(json::item_to_string).collect();
        let looked = self.look_at_all(rule, &keys, &Arrivals::new(), deadline).await;
        for look in looked.into_values() {
            match look {
                Ok(Looked::InOrder) => {}
                Ok(Looked::Written) => report.repaired += 1,
                Ok(Looked::Refused) => report.refused += 1,
                Err(Failure::Retry(_)) => report.postponed += 1,
                Err(fatal @ Failure::Fatal(_)) => return Err(fatal),
            }
        }
        Ok(())
    }

    /// The keys of a sample of a rule's copies. A page that cannot be read leaves those before it: on a
    /// throttled table no sample would ever be whole.
    async fn sampled(
        &self,
        rule: &CopyRule,
        draw: u64,
        deadline: Deadline,
        report: &mut SelfCheckReport,
    ) -> Result<Vec<Item>, Failure> {
        let part = deadline.limit(self.tables.part(rule, draw)).await?;
        let (mut keys, mut after) = (Vec::new(), None);
        for _ in 0..SAMPLE_PAGES_MAX {
            let most = SAMPLE_COPIES_MAX - keys.len();
            let page = self.tables.sample(rule, part, after.as_ref(), most);
            let page = match deadline.limit(page).await {
                Ok(page) => page,
                Err(Failure::Retry(reason)) if !keys.is_empty() => {
                    warn!(reason, rule = rule.name, "a part of the sample is left out");
                    report.postponed += 1;
                    break;
                }
                Err(failure) => return Err(failure),
            };
            keys.extend(page.keys.into_iter().take(most));
            after = page.next;
            if after.is_none() || keys.len() >= SAMPLE_COPIES_MAX {
                break;
            }
        }
        Ok(keys)
    }

    /// Looks at a sample of each rule's copies; `draw` says which.
    ///
    /// # Errors
    /// When the deployment is wrong.
    pub async fn check_sample(
        &self,
        draw: u64,
        deadline: Deadline,
    ) -> Result<SelfCheckReport, Failure> {
        let mut report = SelfCheckReport { rules: self.rule.rules.len(), ..Default::default() };
        for rule in &self.rule.rules {
            let keys = match self.sampled(rule, draw, deadline, &mut report).await {
                Ok(keys) => keys,
                Err(Failure::Retry(reason)) => {
                    warn!(reason, rule = rule.name, "no sample");
                    report.postponed += 1;
                    continue;
                }
                Err(fatal @ Failure::Fatal(_)) => return Err(fatal),
            };
            self.look_and_report(rule, &keys, deadline, &mut report).await?;
        }
        Ok(report)
    }
}
