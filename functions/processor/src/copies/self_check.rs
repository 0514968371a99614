//! The self-check: checks a sample of the copies of each rule, a different sample in each run, and
//! repairs the copies that differ from their origins.
//!
//! The self-check runs on a schedule. A repair request checks all copies of one rule instead, page
//! by page until the deadline, and returns the key after which to resume. The self-check and the
//! repair find copies that no record reported. There are two causes: the index did not contain the
//! copy yet when the job read the index, or records were discarded. A copy may also differ because
//! its job is still in progress; writing the copy is correct in that case too.

use model::{Item, json};
use rules::fan_out::CopyRule;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tracing::warn;

use super::checks::{CheckOutcome, HopsByCopy, ROUND_COPIES};
use super::{Copies, CopyTables};
use crate::back_off::Deadline;
use crate::failure::Failure;

/// Maximum number of copies in one sample. Parts differ in size, and a part ends only after the
/// last item of a partition key.
const SAMPLE_COPIES_MAX: usize = 400;
/// Maximum number of pages of 1 MB in one sample: a page for each hundred of
/// [`SAMPLE_COPIES_MAX`] copies.
const SAMPLE_PAGES_MAX: usize = 4;

/// The report of a run of the self-check or of a repair.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SelfCheckReport {
    /// Number of rules.
    pub rules: usize,
    /// Copies that were checked.
    pub copies: usize,
    /// Copies that differed from their origin and were repaired.
    pub repaired: usize,
    /// Copies that could not be checked. A later run checks them.
    pub postponed: usize,
    /// Copies that cannot be written: DynamoDB refuses the new item, the origin's key is too long
    /// for a job's key, or several deployments copy the value in a cycle.
    pub refused: usize,
}

/// A request to repair the copies of one rule: the event `{"repair": {"rule": …, "after": …}}`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RepairRequest {
    /// The rule's name.
    pub rule: String,
    /// The key after which to resume, in DynamoDB JSON; `None` begins with the first copy.
    pub after: Option<Box<RawValue>>,
}

/// The response to a [`RepairRequest`].
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Repaired {
    /// The report of the copies up to `after`. Only `postponed` counts later copies, which could
    /// not be checked in this run.
    pub checked: SelfCheckReport,
    /// True if all copies were checked.
    pub is_whole: bool,
    /// The key after which to resume; `None` if no copy was checked, or all copies were.
    pub after: Option<Box<RawValue>>,
}

/// The position at which the work on a page of a repair ended.
enum PageEnd {
    Complete,
    /// The work ended after this copy of the page; `None` if it ended before the first copy.
    StoppedAfter(Option<Item>),
}

#[derive(Deserialize)]
struct Envelope {
    repair: Option<RepairRequest>,
}

impl RepairRequest {
    /// Decodes an event; `None` if it requests no repair.
    ///
    /// # Errors
    /// When the event is malformed; the message states how to write it.
    pub fn read(event: &str) -> Result<Option<Self>, Failure> {
        let read: Result<Envelope, _> = serde_json::from_str(event);
        read.map(|envelope| envelope.repair).map_err(|error| {
            Failure::Fatal(format!(
                "cannot parse the event: {error}; send {{\"repair\":{{\"rule\":\"NAME\"}}}}"
            ))
        })
    }
}

impl<T: CopyTables> Copies<T> {
    /// Checks the copies of a rule in order, page by page. Stops after half of the remaining time,
    /// or before the first copy that cannot be checked.
    ///
    /// # Errors
    /// When there is no rule with this name, the key is invalid, or no page of the table can be
    /// read.
    pub async fn repair(
        &self,
        request: &RepairRequest,
        deadline: Deadline,
    ) -> Result<Repaired, Failure> {
        let rule = self.rule.rule(&request.rule).ok_or_else(|| {
            let names: Vec<&str> = self.rule.rules.iter().map(|rule| rule.name.as_str()).collect();
            let (name, names) = (&request.rule, names.join(", "));
            Failure::Fatal(format!("there is no rule `{name}`; the rules are: {names}"))
        })?;
        let after = request.after.as_ref().map(|raw| json::item_from_str(raw.get()));
        let mut after = after.transpose().map_err(|error| {
            Failure::Fatal(format!("cannot parse `after` of the event: {error}"))
        })?;
        let mut checked = SelfCheckReport { rules: 1, ..Default::default() };
        let (half, mut is_whole) = (deadline.half_way(), false);
        // The deadline bounds the loop, because each iteration makes one request.
        loop {
            let page = match deadline.limit(self.tables.all(rule, after.as_ref())).await {
                Ok(page) => page,
                // The response reports the progress so far, and the caller resumes from there.
                Err(Failure::Retry(reason)) if checked.copies > 0 => {
                    warn!(
                        reason,
                        rule = rule.name,
                        "a page of copies could not be read; resume the repair with `after` of the response"
                    );
                    break;
                }
                Err(failure) => return Err(failure),
            };
            match self.repair_page(rule, &page.keys, (half, deadline), &mut checked).await? {
                PageEnd::Complete => after = page.next,
                PageEnd::StoppedAfter(settled) => {
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

    /// Checks the copies of a page in order. Stops before the first copy that cannot be checked, or
    /// at the deadline.
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
            let mut looked = self.look_at_all(rule, &texts, &HopsByCopy::new(), deadline).await;
            let mut postponed = 0;
            for (key, text) in some.iter().zip(&texts) {
                match looked.remove(text) {
                    Some(Err(fatal @ Failure::Fatal(_))) => return Err(fatal),
                    Some(Err(Failure::Retry(_))) | None => postponed += 1,
                    // Copies after the first unchecked copy are not counted as checked, because
                    // the next run checks them again. Their repairs are counted, because the next
                    // run finds these copies correct.
                    Some(Ok(CheckOutcome::Written)) => checked.repaired += 1,
                    Some(Ok(CheckOutcome::Refused)) if postponed == 0 => checked.refused += 1,
                    Some(Ok(CheckOutcome::Refused | CheckOutcome::UpToDate)) => {}
                }
                if postponed == 0 {
                    checked.copies += 1;
                    settled = Some(key.clone());
                }
            }
            if postponed > 0 {
                checked.postponed = postponed;
                return Ok(PageEnd::StoppedAfter(settled));
            }
            if half.is_over() {
                return Ok(PageEnd::StoppedAfter(settled));
            }
        }
        Ok(PageEnd::Complete)
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
        let looked = self.look_at_all(rule, &keys, &HopsByCopy::new(), deadline).await;
        for look in looked.into_values() {
            match look {
                Ok(CheckOutcome::UpToDate) => {}
                Ok(CheckOutcome::Written) => report.repaired += 1,
                Ok(CheckOutcome::Refused) => report.refused += 1,
                Err(Failure::Retry(_)) => report.postponed += 1,
                Err(fatal @ Failure::Fatal(_)) => return Err(fatal),
            }
        }
        Ok(())
    }

    /// Returns the keys of a sample of a rule's copies. If a page cannot be read, the sample
    /// consists of the earlier pages. Otherwise no sample of a throttled table would ever be
    /// complete.
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
                    warn!(
                        reason,
                        rule = rule.name,
                        "the self-check read only a part of its sample of copies"
                    );
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

    /// Checks a sample of each rule's copies. `draw` selects the sample.
    ///
    /// # Errors
    /// When the deployment is misconfigured, for example because a table or a permission is
    /// missing.
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
                    warn!(
                        reason,
                        rule = rule.name,
                        "the self-check could not read its sample of copies"
                    );
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
