//! The reasons of a cancelled transaction: the member `CancellationReasons`, with DynamoDB's error messages.
//!
//! Source: AWS, "TransactWriteItems", reasons for cancellation. The module `error` creates the
//! error itself.

use partition::CancellationReason;

use super::answer::{item_member, text_member};

/// The message for an item collection that would become too large.
pub(super) const COLLECTION_TOO_LARGE: &str = "Collection size exceeded.";
/// The message for an insert of an existing item.
pub(super) const DUPLICATE_ITEM: &str = "Duplicate primary key exists in table";

/// The message for a table that does not exist.
pub(super) const TABLE_NOT_FOUND: &str = "Requested resource not found";

/// The outcome of an operation in a cancelled transaction: no failure, or the reason of its failure.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Reason {
    /// The outcome when the transaction was applied to the state: a failure, or
    /// [`CancellationReason::None`] for no failure.
    OfState(CancellationReason),
    /// An insert found an existing item.
    DuplicateItem,
    /// The operation exceeded the throughput of its table and was not attempted.
    Throttled {
        /// Whether the table's throughput is provisioned.
        is_provisioned: bool,
        /// DynamoDB's error message.
        text: String,
    },
    /// The table does not exist, so the operation was not attempted.
    TableNotFound,
}

impl Reason {
    /// The outcome of an operation that did not fail.
    pub(crate) const NONE: Self = Self::OfState(CancellationReason::None);

    /// Returns the reason of an invalid operation, with DynamoDB's message.
    pub(crate) fn invalid(text: String) -> Self {
        Self::OfState(CancellationReason::Invalid(text))
    }
}

impl From<CancellationReason> for Reason {
    fn from(reason: CancellationReason) -> Self {
        Self::OfState(reason)
    }
}

/// Returns DynamoDB's code for the reason of an operation.
pub(super) fn reason_code(reason: &Reason) -> &'static str {
    match reason {
        Reason::OfState(reason) => code_of_state(reason),
        Reason::DuplicateItem => "DuplicateItem",
        Reason::Throttled { is_provisioned: true, .. } => "ProvisionedThroughputExceeded",
        Reason::Throttled { is_provisioned: false, .. } => "ThrottlingError",
        Reason::TableNotFound => "ResourceNotFound",
    }
}

fn code_of_state(reason: &CancellationReason) -> &'static str {
    match reason {
        CancellationReason::None => "None",
        CancellationReason::ConditionFailed { .. } => "ConditionalCheckFailed",
        CancellationReason::Invalid(_) => "ValidationError",
        CancellationReason::Conflict => "TransactionConflict",
        CancellationReason::ItemCollectionTooLarge => "ItemCollectionSizeLimitExceeded",
    }
}

/// Appends the member `CancellationReasons`, if there are reasons.
pub(super) fn write_reasons(body: &mut String, reasons: &[Reason]) {
    for (position, reason) in reasons.iter().enumerate() {
        body.push_str(if position == 0 { ",\"CancellationReasons\":[{" } else { ",{" });
        text_member(body, "Code", reason_code(reason));
        match reason {
            Reason::OfState(reason) => write_message_of_state(body, reason),
            Reason::DuplicateItem => text_member(body, "Message", DUPLICATE_ITEM),
            Reason::Throttled { text, .. } => text_member(body, "Message", text),
            Reason::TableNotFound => text_member(body, "Message", TABLE_NOT_FOUND),
        }
        body.push('}');
    }
    if !reasons.is_empty() {
        body.push(']');
    }
}

fn write_message_of_state(body: &mut String, reason: &CancellationReason) {
    match reason {
        CancellationReason::None => {}
        CancellationReason::ConditionFailed { item } => {
            text_member(body, "Message", "The conditional request failed");
            if let Some(item) = item {
                item_member(body, "Item", item);
            }
        }
        CancellationReason::ItemCollectionTooLarge => {
            text_member(body, "Message", COLLECTION_TOO_LARGE);
        }
        CancellationReason::Invalid(text) => text_member(body, "Message", text),
        CancellationReason::Conflict => {
            text_member(body, "Message", "Transaction is ongoing for the item");
        }
    }
}
