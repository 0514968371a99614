//! Options of a table: class, encryption, tags, resource policy, throughput limits, point-in-time
//! recovery, and the history of its throughput. No option changes how items are processed.
//!
//! Sources: AWS, "UpdateTable", "Warm throughput", "Quotas: decreasing provisioned throughput".

use std::collections::BTreeMap;

use model::EpochMillis;
use serde::{Deserialize, Serialize};

use crate::table::billing::Billing;
use crate::table::refusal::TableRefusal;

/// Reads and writes per second that a new on-demand table sustains immediately.
const ON_DEMAND_WARM: Units = Units { read: 12_000, write: 4_000 };
/// Milliseconds of a day; the days for throughput decreases begin at 00:00 UTC.
const DAY_MS: u64 = 24 * 60 * 60 * 1000;

/// Reads and writes per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Units {
    /// Read capacity units per second.
    pub read: u64,
    /// Write capacity units per second.
    pub write: u64,
}

/// A limit of on-demand throughput; `None` is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OnDemandLimit {
    /// Reads per second.
    pub read: Option<u64>,
    /// Writes per second.
    pub write: Option<u64>,
}

/// The options of an index.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IndexOptions {
    /// The index's limit of on-demand throughput.
    pub on_demand_limit: OnDemandLimit,
    /// The warm throughput that was requested; see [`TableOptions::warm`].
    pub warm: Units,
}

/// A resource policy, which is stored but not enforced.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourcePolicy {
    /// The policy's JSON.
    pub text: String,
    /// The policy's revision, which increases with every change.
    pub revision: u64,
}

/// The setting of point-in-time recovery. The store does not implement recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recovery {
    /// The time at which point-in-time recovery was enabled.
    pub since: EpochMillis,
    /// The recovery period in days, from 1 to 35.
    pub days: u8,
}

/// The options of a table.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableOptions {
    /// Whether the table class is for infrequent access; `None` if no request has set a class.
    pub infrequent_access: Option<bool>,
    /// The ARN of the KMS key; `None` for a key that AWS owns.
    pub encryption_key: Option<String>,
    /// The limit of on-demand throughput.
    pub on_demand_limit: OnDemandLimit,
    /// Warm throughput, which the table sustains immediately. It never decreases.
    pub warm: Units,
    /// Options of the table's global indexes, by index name.
    pub indexes: BTreeMap<String, IndexOptions>,
    /// The table's tags.
    pub tags: BTreeMap<String, String>,
    /// The table's resource policy.
    pub policy: Option<ResourcePolicy>,
    /// The revision of the table's latest policy, which may have been deleted.
    pub latest_policy_revision: u64,
    /// Point-in-time recovery, if it is enabled.
    pub recovery: Option<Recovery>,
    /// The time of the table's last change to on-demand mode.
    pub on_demand_at: Option<EpochMillis>,
    /// The time at which the table's provisioned throughput was last increased.
    pub increased_at: Option<EpochMillis>,
    /// The time at which the table's provisioned throughput was last decreased.
    pub decreased_at: Option<EpochMillis>,
    /// The number of decreases of provisioned throughput on the UTC day of `decreased_at`.
    pub decreases: u32,
}

/// A change of one option.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum OptionChange {
    /// Sets whether the class is for infrequent access.
    Class(bool),
    /// Sets the ARN of the KMS key; `None` for a key that AWS owns.
    Encrypt(Option<String>),
    /// Changes the on-demand limit of the table or of an index: `None` leaves a value unchanged,
    /// `Some(None)` removes it.
    OnDemandLimit {
        /// The index; `None` for the table.
        index: Option<String>,
        /// Reads.
        read: Option<Option<u64>>,
        /// Writes.
        write: Option<Option<u64>>,
    },
    /// Raises the warm throughput of the table or of an index.
    Warm {
        /// The index; `None` for the table.
        index: Option<String>,
        /// Reads.
        read: Option<u64>,
        /// Writes.
        write: Option<u64>,
    },
    /// Adds tags, or changes their values.
    Tag(BTreeMap<String, String>),
    /// Removes tags.
    Untag(Vec<String>),
    /// Replaces the resource policy if it is the expected policy.
    PutPolicy {
        /// The policy's JSON.
        text: String,
        /// The policy that the table must have before the change.
        expected: ExpectedPolicy,
    },
    /// Deletes the resource policy if it is the expected policy.
    DeletePolicy {
        /// The policy that the table must have before the change.
        expected: ExpectedPolicy,
    },
    /// Enables point-in-time recovery with a recovery period in days, or disables it.
    Recovery(Option<u8>),
}

/// The policy that a change expects to find.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ExpectedPolicy {
    /// Any policy, or no policy.
    Any,
    /// No policy.
    Absent,
    /// The policy with the given revision.
    Revision(u64),
}

impl TableOptions {
    /// Returns the options of a new table.
    pub(crate) fn new(billing: Billing, now: EpochMillis) -> Self {
        let mut options = Self::default();
        if billing == Billing::OnDemand {
            options.on_demand_at = Some(now);
        }
        options
    }

    /// Returns the warm throughput of a table with the given billing mode.
    #[must_use]
    pub fn warm_of_table(&self, billing: Billing) -> Units {
        self.at_least(self.warm, billing, None)
    }

    /// Returns the warm throughput of an index; `units` is its provisioned throughput.
    #[must_use]
    pub fn warm_of_index(&self, name: &str, billing: Billing, units: Option<(u64, u64)>) -> Units {
        let asked = self.indexes.get(name).map_or_else(Units::default, |index| index.warm);
        self.at_least(asked, billing, Some(units.unwrap_or_default()))
    }

    fn at_least(&self, asked: Units, billing: Billing, index: Option<(u64, u64)>) -> Units {
        let least = match (billing, index) {
            (Billing::OnDemand, _) => ON_DEMAND_WARM,
            (Billing::Provisioned { .. }, Some((read, write))) => Units { read, write },
            (Billing::Provisioned { read_units, write_units }, None) => {
                // A table that was on-demand earlier retains the warm throughput of an on-demand
                // table.
                let kept = self.on_demand_at.map_or_else(Units::default, |_| ON_DEMAND_WARM);
                Units { read: read_units.max(kept.read), write: write_units.max(kept.write) }
            }
        };
        Units { read: asked.read.max(least.read), write: asked.write.max(least.write) }
    }

    /// Returns the number of decreases of provisioned throughput on the current UTC day.
    #[must_use]
    pub fn decreases_today(&self, now: EpochMillis) -> u32 {
        match self.decreased_at {
            Some(at) if at.0 / DAY_MS == now.0 / DAY_MS => self.decreases,
            _ => 0,
        }
    }

    /// Records a change of throughput or billing mode.
    pub(crate) fn note_billing(&mut self, before: Billing, after: Billing, now: EpochMillis) {
        match (before, after) {
            (_, Billing::OnDemand) if before != after => {
                self.warm = self.warm_of_table(before);
                self.on_demand_at = Some(now);
            }
            (
                Billing::Provisioned { read_units: old_read, write_units: old_write },
                Billing::Provisioned { read_units, write_units },
            ) => {
                self.warm = self.warm_of_table(before);
                if read_units > old_read || write_units > old_write {
                    self.increased_at = Some(now);
                }
                if read_units < old_read || write_units < old_write {
                    self.decreases = self.decreases_today(now).saturating_add(1);
                    self.decreased_at = Some(now);
                }
            }
            _ => {}
        }
        if before != after && after != Billing::OnDemand {
            self.on_demand_limit = OnDemandLimit::default();
        }
    }

    /// Applies a change. Returns [`TableRefusal::PolicyChanged`] if the policy is not the expected
    /// one.
    pub(crate) fn apply(
        &mut self,
        change: OptionChange,
        now: EpochMillis,
    ) -> Result<(), TableRefusal> {
        match change {
            OptionChange::Class(is_infrequent) => self.infrequent_access = Some(is_infrequent),
            OptionChange::Encrypt(key) => self.encryption_key = key,
            OptionChange::OnDemandLimit { index, read, write } => {
                let limit = match index {
                    None => &mut self.on_demand_limit,
                    Some(name) => &mut self.indexes.entry(name).or_default().on_demand_limit,
                };
                limit.read = read.unwrap_or(limit.read);
                limit.write = write.unwrap_or(limit.write);
            }
            OptionChange::Warm { index, read, write } => {
                let warm = match index {
                    None => &mut self.warm,
                    Some(name) => &mut self.indexes.entry(name).or_default().warm,
                };
                warm.read = warm.read.max(read.unwrap_or(0));
                warm.write = warm.write.max(write.unwrap_or(0));
            }
            OptionChange::Tag(tags) => self.tags.extend(tags),
            OptionChange::Untag(keys) => self.tags.retain(|key, _| !keys.contains(key)),
            OptionChange::PutPolicy { text, expected } => {
                self.check_policy(expected)?;
                // As in DynamoDB, the revision looks like a time in milliseconds. It always
                // increases.
                self.latest_policy_revision = now.0.max(self.latest_policy_revision + 1);
                self.policy = Some(ResourcePolicy { text, revision: self.latest_policy_revision });
            }
            OptionChange::DeletePolicy { expected } => {
                self.check_policy(expected)?;
                self.policy = None;
            }
            OptionChange::Recovery(None) => self.recovery = None,
            OptionChange::Recovery(Some(days)) => {
                let since = self.recovery.map_or(now, |recovery| recovery.since);
                self.recovery = Some(Recovery { since, days });
            }
        }
        Ok(())
    }

    fn check_policy(&self, expected: ExpectedPolicy) -> Result<(), TableRefusal> {
        let found = self.policy.as_ref().map(|policy| policy.revision);
        let is_expected = match expected {
            ExpectedPolicy::Any => true,
            ExpectedPolicy::Absent => found.is_none(),
            ExpectedPolicy::Revision(revision) => found == Some(revision),
        };
        if is_expected { Ok(()) } else { Err(TableRefusal::PolicyChanged) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn provisioned(read_units: u64, write_units: u64) -> Billing {
        Billing::Provisioned { read_units, write_units }
    }

    #[test]
    fn decreases_are_counted_by_day() {
        let mut options = TableOptions::new(provisioned(9, 9), EpochMillis(0));
        let hour = 60 * 60 * 1000;
        for (at, before, after, decreases) in [
            (EpochMillis(DAY_MS - hour), (9, 9), (8, 8), 1),
            (EpochMillis(DAY_MS - hour), (8, 8), (9, 7), 2),
            (EpochMillis(DAY_MS - 1), (9, 7), (9, 9), 2),
            (EpochMillis(DAY_MS), (9, 9), (9, 8), 1),
        ] {
            options.note_billing(
                provisioned(before.0, before.1),
                provisioned(after.0, after.1),
                at,
            );
            assert_eq!(options.decreases_today(at), decreases, "{at:?}");
        }
        assert_eq!(options.decreases_today(EpochMillis(2 * DAY_MS)), 0);
        assert_eq!(options.increased_at, Some(EpochMillis(DAY_MS - 1)));
    }

    #[test]
    fn warm_throughput_only_grows() {
        let mut options = TableOptions::new(provisioned(10, 2), EpochMillis(0));
        let warm = |options: &TableOptions, billing| {
            let Units { read, write } = options.warm_of_table(billing);
            (read, write)
        };
        assert_eq!(warm(&options, provisioned(10, 2)), (10, 2));
        options.note_billing(provisioned(10, 2), provisioned(5, 3), EpochMillis(1));
        assert_eq!(warm(&options, provisioned(5, 3)), (10, 3));
        let change = OptionChange::Warm { index: None, read: None, write: Some(50) };
        options.apply(change, EpochMillis(2)).unwrap();
        assert_eq!(warm(&options, provisioned(5, 3)), (10, 50));
        options.note_billing(provisioned(5, 3), Billing::OnDemand, EpochMillis(3));
        assert_eq!(warm(&options, Billing::OnDemand), (12_000, 4_000));
        options.note_billing(Billing::OnDemand, provisioned(1, 1), EpochMillis(4));
        assert_eq!(warm(&options, provisioned(1, 1)), (12_000, 4_000));
    }

    #[test]
    fn a_policy_changes_only_from_the_expected_one() {
        let mut options = TableOptions::default();
        let put = |expected| OptionChange::PutPolicy { text: "{}".to_owned(), expected };
        let now = EpochMillis(5);
        assert!(options.apply(put(ExpectedPolicy::Revision(5)), now).is_err());
        options.apply(put(ExpectedPolicy::Absent), now).unwrap();
        assert!(options.apply(put(ExpectedPolicy::Absent), now).is_err());
        options.apply(put(ExpectedPolicy::Revision(5)), now).unwrap();
        assert_eq!(options.policy.as_ref().map(|policy| policy.revision), Some(6));
        let delete = |expected| OptionChange::DeletePolicy { expected };
        assert!(options.apply(delete(ExpectedPolicy::Revision(5)), now).is_err());
        options.apply(delete(ExpectedPolicy::Any), now).unwrap();
        options.apply(put(ExpectedPolicy::Any), now).unwrap();
        assert_eq!(options.policy.map(|policy| policy.revision), Some(7));
    }
}
