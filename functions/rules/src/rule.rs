//! The interface of a rule: which target items it needs, and what it decides about one stream record.
//!
//! The processor loads and writes the items.

use std::collections::{BTreeMap, BTreeSet};

use model::Item;
use model::arn::StreamArn;
use model::stream_record::{LambdaRecord, RecordView};
use thiserror::Error;

use crate::counters::{DamagedTotal, Total};
use crate::effect::Effect;

/// The target items that a rule needs before it can decide.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// The counters whose total items are needed.
    pub totals: BTreeSet<String>,
    /// The keys, as text, of the items whose history heads are needed.
    pub heads: BTreeSet<String>,
}

/// The items that were found for [`Needs`]. An item without an entry does not exist.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// The totals by counter. Each total is read once per batch, although several records may need
    /// it.
    pub totals: BTreeMap<String, Result<Total, DamagedTotal>>,
    /// The heads of histories, by the item's key as text.
    pub heads: BTreeMap<String, Item>,
    /// The counters whose totals were not loaded, because the loaded totals already have many slots.
    /// Such a total is read when it is written.
    pub not_loaded: BTreeSet<String>,
}

impl Needs {
    /// Adds the needs of other records.
    pub fn add(&mut self, others: Needs) {
        self.totals.extend(others.totals);
        self.heads.extend(others.heads);
    }

    /// Returns the needs that `others` do not contain.
    #[must_use]
    pub fn without(mut self, others: &Needs) -> Self {
        self.totals.retain(|counter| !others.totals.contains(counter));
        self.heads.retain(|item| !others.heads.contains(item));
        self
    }

    /// Returns the number of needed items.
    #[must_use]
    pub fn count(&self) -> usize {
        self.totals.len() + self.heads.len()
    }
}

impl Found {
    /// Adds more found items.
    pub fn add(&mut self, others: Found) {
        self.totals.extend(others.totals);
        self.heads.extend(others.heads);
        self.not_loaded.extend(others.not_loaded);
    }

    /// Returns the number of slots in all found totals.
    #[must_use]
    pub fn slots(&self) -> usize {
        self.totals.values().flatten().map(|total| total.cells.len()).sum()
    }
}

/// The access of a rule to the records of a batch before it decides about the first record. The
/// modes differ in memory: decoded records take several times the memory of their text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LookAhead {
    /// Nothing is loaded: [`Rule::needs`] is not called.
    Nothing,
    /// Each record is decoded for [`Rule::needs`], dropped, and decoded again for its decision. This
    /// is for items of any size.
    ReadTwice,
    /// The records are decoded once and kept until the batch ends. This is for small items.
    Keep,
}

/// The reason why a stream record can never be processed, even with retries. The record is
/// quarantined, and the shard continues.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct Refusal(pub String);

/// A rule: the decisions of a stream function. The same record always gives the same effects.
pub trait Rule {
    /// Returns how the records of a batch are read before the first decision.
    fn look_ahead(&self) -> LookAhead {
        LookAhead::Keep
    }

    /// Returns the maximum number of slots of a target item that [`Rule::needs`] requests; 1 for items
    /// without slots.
    fn slots_of_need(&self) -> usize {
        1
    }

    /// Returns the target items that must be loaded to decide about `records`.
    fn needs(&self, records: &[&LambdaRecord]) -> Needs;

    /// Returns the effects of `record`; empty if the record does not concern this rule.
    ///
    /// # Errors
    /// The record can never be processed, even with retries.
    fn decide(&self, record: &LambdaRecord, found: &Found) -> Result<Vec<Effect>, Refusal>;

    /// Decides as [`Rule::decide`] does. The record borrows from its text.
    ///
    /// # Errors
    /// The record can never be processed, even with retries.
    fn decide_view(&self, record: RecordView<'_>, found: &Found) -> Result<Vec<Effect>, Refusal> {
        self.decide(&record.into_record(), found)
    }

    /// Applies several rules to one record. Returns the effects of the rules that accept the record, and
    /// the first refusal of the others.
    fn decide_each(&self, record: RecordView<'_>, found: &Found) -> (Vec<Effect>, Option<Refusal>) {
        match self.decide_view(record, found) {
            Ok(effects) => (effects, None),
            Err(refusal) => (Vec::new(), Some(refusal)),
        }
    }
}

/// Parses the ARN of a stream.
///
/// # Errors
/// The text is not the ARN of a stream.
pub(crate) fn stream_of(event_source_arn: &str) -> Result<StreamArn, Refusal> {
    event_source_arn.parse().map_err(|error| Refusal(format!("`eventSourceARN`: {error}")))
}

#[cfg(test)]
pub(crate) mod testing {
    //! Decisions as text cases: a case is a line `# what it shows`, a record, `----`, and the
    //! decision.

    use std::fmt::Write as _;

    use model::json;
    use model::stream_record::{RecordView, decode_lambda_record};

    use super::{Found, Rule};
    use crate::effect::Effect;

    /// Runs every case of a file and compares the rule's decision with the expected one.
    pub(crate) fn check_decisions(rule: &dyn Rule, found: &Found, cases: &str) {
        let mut checked = 0;
        for case in cases.split("\n\n").filter(|case| !case.trim().is_empty()) {
            let (input, expected) = case.split_once("\n----\n").expect("a case has `----`");
            let (title, record) = input.trim_start().split_once('\n').expect("a case has a title");
            assert!(title.starts_with("# "), "{title}");
            let record =
                decode_lambda_record(&json::parse(record.as_bytes()).expect(title)).expect(title);
            let decided = rule.decide(&record, found);
            let of_view = rule.decide_view(RecordView::of(&record), found);
            assert_eq!(decided, of_view, "{title}");
            let decided = match decided {
                Ok(effects) if effects.is_empty() => "nothing".to_owned(),
                Ok(effects) => effects.iter().map(describe).collect::<Vec<_>>().join("\n"),
                Err(refusal) => format!("refused: {refusal}"),
            };
            assert_eq!(decided, expected.trim_end(), "{title}");
            checked += 1;
        }
        assert!(checked > 0);
    }

    fn describe(effect: &Effect) -> String {
        let mut text = String::new();
        match effect {
            Effect::Cells { counter, cells } => describe_total(&mut text, counter, cells),
            Effect::Origin { origin, state } => {
                let _ = write!(text, "origin {}", origin.job_key());
                if let Some(state) = &state.0 {
                    let _ = write!(text, " as of {} hops {}", state.stamp, state.hops);
                    for (name, value) in &state.values {
                        let value = value.as_ref().map(crate::fan_out::value_text);
                        let _ = write!(text, "\n{name} {}", value.as_deref().unwrap_or("-"));
                    }
                    if state.deleted {
                        text.push_str("\ndeleted");
                    }
                }
            }
            Effect::Continue { origin, revision } => {
                let _ = write!(text, "continue {} at {}", origin.job_key(), revision.0);
            }
            Effect::CheckCopy { copy, arrival } => {
                let _ = write!(text, "look {} {} hops {}", copy.rule, copy.key, arrival.0);
            }
            Effect::Changes { item, changes } => describe_history(&mut text, item, changes),
            Effect::Rewrite { target } => {
                let _ = write!(text, "rewrite {}:{:?}", target.table, target.key);
            }
            Effect::Assemble { document, keys } => {
                let _ = write!(text, "assemble {}:{:?}", document.parts, document.partition);
                let _ = keys.0.iter().try_for_each(|key| write!(text, "\nkey {key:?}"));
            }
            Effect::Registers { target, registers } => {
                let _ = write!(text, "target {}:{:?}", target.table, target.key);
                for (source, register) in registers.iter() {
                    let item = register.item.as_ref().map(json::item_to_string);
                    let item = item.unwrap_or_else(|| "gone".to_owned());
                    let _ = write!(text, "\n{source} as of {}: {item}", register.stamp);
                }
            }
            Effect::Rows { bucket, rows } => {
                let _ = write!(text, "{}", bucket.prefix("archive/"));
                for row in rows.iter() {
                    let _ = write!(
                        text,
                        "\nrow {} {} {}",
                        row.event_id(),
                        row.event_name,
                        row.deleted_by.as_str()
                    );
                    let _ = write!(
                        text,
                        " at {}, expired {:?} from {:?}",
                        row.deleted_at_ms, row.expires_at_ms, row.ttl_raw
                    );
                    for (place, column) in row.schema.columns().enumerate() {
                        let value = row.value(place);
                        let _ = write!(text, "\n{} {}: {value:?}", column.name, column.column_type);
                    }
                    let _ = write!(text, "\nitem {}\ncoercions {:?}", row.item(), row.coercions);
                }
            }
        }
        text
    }

    fn describe_total(text: &mut String, counter: &str, cells: &crate::counters::Cells) {
        let _ = write!(text, "total {counter}:");
        for (slot, cell) in cells.iter() {
            let _ = write!(text, " {slot}={} as of {}", cell.value, cell.stamp);
            if let Some(seconds) = cell.gone_at {
                let _ = write!(text, " gone at {seconds}");
            }
        }
    }

    fn describe_history(text: &mut String, item: &str, changes: &crate::versions::Changes) {
        let _ = write!(text, "history {item}");
        for (stamp, change) in changes.iter() {
            let image = |image: &Option<model::Item>| {
                image.as_ref().map_or_else(|| "-".to_owned(), json::item_to_string)
            };
            let _ = write!(
                text,
                "\n{} as of {stamp} at {:?}{} {}\nfrom {}\nto {}",
                change.event.as_str(),
                change.at_seconds,
                if change.by_ttl { " by TTL" } else { "" },
                change.event_id,
                image(&change.before),
                image(&change.image),
            );
        }
    }
}
