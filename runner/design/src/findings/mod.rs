//! The findings about a valid model: slow, expensive, hot, unused or unanswered parts.
//!
//! `patterns` checks access patterns; `tables` checks tables, indexes and example items. Each
//! finding has a name, which a model can list under `accept` to suppress the finding.

mod patterns;
mod tables;

use std::fmt;

use template::Span;
use template::diagnostic::{Diagnostics, Findings};

use crate::command::place_of;
use crate::data_model::{DataModel, Place};
use crate::estimate::Estimate;
use crate::prices::Prices;
use crate::trial::Outcome;

/// A scan answers an access pattern.
pub const SCAN: &str = "scan";
/// A filter discards most of the items that a pattern reads.
pub const FILTER: &str = "filter";
/// A partition key receives more load than a partition can serve.
pub const HOT_PARTITION: &str = "hot-partition";
/// A partition key has few values.
pub const FEW_KEYS: &str = "few-keys";
/// No access pattern uses an index.
pub const UNUSED_INDEX: &str = "unused-index";
/// An index contains attributes that its patterns do not read.
pub const WIDE_PROJECTION: &str = "wide-projection";
/// An index lacks attributes that its patterns read.
pub const NARROW_PROJECTION: &str = "narrow-projection";
/// A pattern changes a key attribute of an index.
pub const CHANGING_KEY: &str = "changing-key";
/// An item is near the maximum size.
pub const LARGE_ITEM: &str = "large-item";
/// The items of a partition key exceed the size that a local index allows.
pub const LARGE_COLLECTION: &str = "large-collection";
/// The value of a TTL attribute is not a time in seconds.
pub const TIME_TO_LIVE: &str = "time-to-live";
/// No operation answers a pattern.
pub const UNANSWERED: &str = "unanswered";
/// The store rejects the request of a pattern.
pub const REFUSED: &str = "refused";
/// A pattern reads nothing from the example items.
pub const NO_ITEMS: &str = "no-items";
/// A pattern reads an attribute that no item has, with a name similar to one that exists.
pub const UNKNOWN_ATTRIBUTE: &str = "unknown-attribute";

/// The part of a model that a finding is about, and whose `accept` can suppress it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// An access pattern.
    Pattern,
    /// A table, with its indexes and items.
    Table,
}

impl Owner {
    /// Returns the names of the findings about this kind of owner.
    #[must_use]
    pub fn checks(self) -> &'static [&'static str] {
        match self {
            Self::Pattern => &[
                SCAN,
                FILTER,
                NARROW_PROJECTION,
                CHANGING_KEY,
                UNANSWERED,
                REFUSED,
                NO_ITEMS,
                UNKNOWN_ATTRIBUTE,
            ],
            Self::Table => &[
                HOT_PARTITION,
                FEW_KEYS,
                UNUSED_INDEX,
                WIDE_PROJECTION,
                LARGE_ITEM,
                LARGE_COLLECTION,
                TIME_TO_LIVE,
            ],
        }
    }

    /// Returns a description of the place of `accept` in a model file.
    #[must_use]
    pub fn place(self) -> &'static str {
        match self {
            Self::Pattern => "the access pattern",
            Self::Table => "the table in `workload` `tables`",
        }
    }

    /// Returns the other kind of owner.
    #[must_use]
    pub fn other(self) -> Self {
        match self {
            Self::Pattern => Self::Table,
            Self::Table => Self::Pattern,
        }
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Pattern => "an access pattern",
            Self::Table => "a table",
        })
    }
}

/// The input of the checks.
pub(crate) struct Context<'m> {
    pub(crate) model: &'m DataModel,
    pub(crate) trial: &'m [Option<Outcome>],
    pub(crate) estimate: &'m Estimate,
    pub(crate) prices: &'m Prices,
    findings: Findings<'m>,
}

impl Context<'_> {
    /// Adds a finding, except if `accept` contains its name.
    pub(crate) fn report(
        &self,
        check: &'static str,
        accept: &[String],
        at: Span,
        message: impl Into<String>,
        help: impl Into<String>,
    ) {
        if !accept.iter().any(|accepted| accepted == check) {
            self.findings.lint(check, at, message, help);
        }
    }

    /// Returns the position of a word in the command of an access pattern.
    pub(crate) fn place_in_command(&self, pattern: usize, word: &str) -> Span {
        let at = self.model.place(&Place::Command(pattern));
        let command = self.model.patterns.get(pattern);
        let command = command.map_or("", |pattern| pattern.implementation.as_str());
        place_of(&self.findings, at, command, word)
    }

    /// Returns the findings that a table accepts.
    pub(crate) fn accepted_by(&self, table: &str) -> &[String] {
        self.model.workload.get(table).map_or(&[], |workload| workload.accept.as_slice())
    }
}

/// Returns the findings about a model. `file` is the name of its file, and `text` the content.
#[must_use]
pub fn find(
    (file, text): (&str, &str),
    model: &DataModel,
    trial: &[Option<Outcome>],
    (estimate, prices): (&Estimate, &Prices),
) -> Diagnostics {
    let findings = Findings::new(file, text);
    let context = Context { model, trial, estimate, prices, findings };
    patterns::check(&context);
    tables::check(&context);
    context.findings.into_parts().0
}

/// Returns the message about a request of the preparation that the store rejects.
#[must_use]
pub fn refused_preparation(
    (file, text): (&str, &str),
    at: Span,
    (operation, error): (&str, &str),
) -> Diagnostics {
    let findings = Findings::new(file, text);
    findings.error(
        at,
        format!("the local store rejects {operation}: {error}"),
        "correct this table or item",
    );
    findings.into_parts().0
}
