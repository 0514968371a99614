//! The data that the parts of the mapping share during one step. Only the counts persist after the
//! step.

use super::command::{Command, Event, Now};
use super::filter::UnknownName;
use super::id::{BatchId, DeliveryId};
use super::settings::Settings;

/// Counts since the start of one run of the mapping. A record that is delivered again after a
/// restart is counted again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Totals {
    /// Number of records read from shards.
    pub read: u64,
    /// Number of records that did not pass the filter.
    pub filtered: u64,
    /// Number of invocations that the mapping requested.
    pub invocations: u64,
    /// Invocations that ended with a function error, or with a response that reports failed
    /// records.
    pub failures: u64,
    /// Number of invocations that did not reach the function.
    pub not_invoked: u64,
    /// Number of records that the function has processed.
    pub done: u64,
    /// Number of discarded records.
    pub discarded: u64,
    /// Number of gaps: records of a shard were trimmed before they were read.
    pub gaps: u64,
}

/// The inputs and outputs that all parts of the mapping share during one step.
pub(super) struct Context<'a> {
    pub(super) settings: &'a Settings,
    pub(super) now: Now,
    pub(super) stopping: bool,
    pub(super) totals: &'a mut Totals,
    /// The attribute name of a pattern that the first filtered record did not have.
    pub(super) unknown_name: &'a mut Option<UnknownName>,
    pub(super) ids: &'a mut u64,
    pub(super) commands: &'a mut Vec<Command>,
}

impl Context<'_> {
    pub(super) fn report(&mut self, event: Event) {
        self.commands.push(Command::Report(event));
    }

    pub(super) fn next_batch_id(&mut self) -> BatchId {
        *self.ids += 1;
        BatchId(*self.ids)
    }

    pub(super) fn next_delivery_id(&mut self) -> DeliveryId {
        *self.ids += 1;
        DeliveryId(*self.ids)
    }
}
