//! The interface of a rule: the target items that it needs, and its decision about one stream
//! record.
//!
//! The processor loads and writes the items.

use std::collections::{BTreeMap, BTreeSet};

use model::arn::StreamArn;
use model::stream_record::{LambdaRecord, RecordView};
use thiserror::Error;

use crate::effect::Fold;

/// The targets whose items a rule needs before it can decide: names of counters, or keys of items
/// as JSON.
pub type Needs = BTreeSet<String>;

/// The inputs that were found for [`Needs`]. A target without an entry does not exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found<I> {
    /// The inputs by target. Each input is read once per batch, even if several records need it.
    pub inputs: BTreeMap<String, I>,
    /// The targets that were not loaded, because the loaded inputs already have the maximum number
    /// of slots. A target that was not loaded is read when it is written.
    pub not_loaded: BTreeSet<String>,
}

impl<I> Default for Found<I> {
    fn default() -> Self {
        Self { inputs: BTreeMap::new(), not_loaded: BTreeSet::new() }
    }
}

impl<I> Found<I> {
    /// Adds the inputs of another `Found`.
    pub fn add(&mut self, others: Self) {
        self.inputs.extend(others.inputs);
        self.not_loaded.extend(others.not_loaded);
    }
}

/// The access of a rule to the records of a batch before it decides about the first record. The
/// modes differ in memory use: decoded records take several times the memory of their JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LookAhead {
    /// Nothing is loaded: [`Rule::needs`] is not called.
    Nothing,
    /// Each record is decoded for [`Rule::needs`], dropped, and decoded again for its decision.
    /// This mode is suitable for items of any size.
    ReadTwice,
    /// The records are decoded once and kept until the batch ends. This mode is suitable only for
    /// small items.
    Keep,
}

/// The reason why a stream record can never be processed, even with retries. The record is
/// quarantined, and the shard continues.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct Refusal(pub String);

/// A rule: the decisions of a stream function. The same record always produces the same effects.
pub trait Rule {
    /// The data of a target that the rule reads before it decides;
    /// [`Infallible`](std::convert::Infallible) if it reads none.
    type Input;
    /// The effects that the rule decides. The executor of the rule applies them.
    type Effect: Fold;

    /// Returns how the records of a batch are read before the first decision.
    fn look_ahead(&self) -> LookAhead {
        LookAhead::Keep
    }

    /// Returns the maximum number of slots of a target item that [`Rule::needs`] requests; 1 for
    /// items without slots.
    fn slots_of_need(&self) -> usize {
        1
    }

    /// Returns the number of slots of an input; 0 for inputs without slots.
    fn slots_of(&self, _input: &Self::Input) -> usize {
        0
    }

    /// Returns the targets that must be loaded to decide about `records`.
    fn needs(&self, _records: &[&LambdaRecord]) -> Needs {
        Needs::new()
    }

    /// Returns the effects of `record`; empty if the record does not concern this rule.
    ///
    /// # Errors
    /// The record can never be processed, even with retries.
    fn decide(
        &self,
        record: &LambdaRecord,
        found: &Found<Self::Input>,
    ) -> Result<Vec<Self::Effect>, Refusal>;

    /// Returns the same as [`Rule::decide`], for a record that borrows from its JSON.
    ///
    /// # Errors
    /// The record can never be processed, even with retries.
    fn decide_view(
        &self,
        record: RecordView<'_>,
        found: &Found<Self::Input>,
    ) -> Result<Vec<Self::Effect>, Refusal> {
        self.decide(&record.into_record(), found)
    }

    /// Applies several rules to one record. Returns the effects of the rules that accept the
    /// record, and the first refusal of the other rules.
    fn decide_each(
        &self,
        record: RecordView<'_>,
        found: &Found<Self::Input>,
    ) -> (Vec<Self::Effect>, Option<Refusal>) {
        match self.decide_view(record, found) {
            Ok(effects) => (effects, None),
            Err(refusal) => (Vec::new(), Some(refusal)),
        }
    }
}

/// Parses the ARN of a stream.
///
/// # Errors
/// The string is not the ARN of a stream.
pub(crate) fn stream_of(event_source_arn: &str) -> Result<StreamArn, Refusal> {
    event_source_arn.parse().map_err(|error| Refusal(format!("`eventSourceARN`: {error}")))
}

#[cfg(test)]
pub(crate) mod testing {
    //! Tests of decisions from text files. A case is a line `# what it shows`, a record, `----`,
    //! and the expected decision.

    use std::fmt::Debug;

    use model::json;
    use model::stream_record::{RecordView, decode_lambda_record};

    use super::{Found, Rule};

    /// Runs every case of a file and compares the rule's decision with the expected decision.
    /// `describe` formats an effect.
    pub(crate) fn check_decisions<R>(
        rule: &R,
        found: &Found<R::Input>,
        describe: impl Fn(&R::Effect) -> String,
        cases: &str,
    ) where
        R: Rule<Effect: Debug + PartialEq>,
    {
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
                Ok(effects) => effects.iter().map(&describe).collect::<Vec<_>>().join("\n"),
                Err(refusal) => format!("refused: {refusal}"),
            };
            assert_eq!(decided, expected.trim_end(), "{title}");
            checked += 1;
        }
        assert!(checked > 0);
    }
}
