//! The self-check: looks at some copies of each rule, others each time, and repairs what differs.
//!
//! Run on a schedule. It finds what no record said: a copy that an index did not know yet when its
//! job visited the others, or records that were given up. A copy whose job is still at work differs
//! too; writing it is right in either case.

use futures::{StreamExt, stream};
use serde::Serialize;
use tracing::warn;

use super::{Copies, CopyTables, TARGETS_AT_ONCE};
use crate::back_off::Deadline;
use crate::failure::Failure;

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
}

impl<T: CopyTables> Copies<T> {
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
            let sampled = deadline.limit(self.tables.sample(rule, draw)).await;
            let keys = match sampled {
                Ok(keys) => keys,
                Err(Failure::Retry(reason)) => {
                    warn!(reason, rule = rule.name, "no sample");
                    report.postponed += 1;
                    continue;
                }
                Err(fatal @ Failure::Fatal(_)) => return Err(fatal),
            };
            report.copies += keys.len();
            let looks: Vec<_> =
                keys.iter().map(|key| deadline.limit(self.look_at(rule, key))).collect();
            let mut looks = stream::iter(looks).buffer_unordered(TARGETS_AT_ONCE);
            while let Some(look) = looks.next().await {
                match look {
                    Ok(written) => report.repaired += written,
                    Err(Failure::Retry(_)) => report.postponed += 1,
                    Err(fatal @ Failure::Fatal(_)) => return Err(fatal),
                }
            }
        }
        Ok(report)
    }
}
